"""What a file is right now, and a read lease on it so that it stays so.

A read lease (Linux) is granted only while nobody has the file open for writing, and whoever opens
it for writing afterwards waits until the lease is given up; until then we can see that they wait.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import signal
import stat
import sys
from dataclasses import dataclass
from types import TracebackType

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes two files the same file to a promotion.

    `mode` holds the permission bits of a regular file; anything else keeps its type bits there and
    has no digest, so it equals no file. `mtime_ns` is `None` where it does not matter.
    """

    mode: int
    size: int
    digest: str
    mtime_ns: int | None = None

    def matches(self, found: Identity) -> bool:
        """Whether `found`, read from disk, is this."""
        same = (self.mode, self.size, self.digest) == (found.mode, found.size, found.digest)
        return same and self.mtime_ns in (None, found.mtime_ns)


class Hold:
    """One name looked at: its identity and, where it could be had, an open descriptor and lease.

    `busy` says that some program had it open for writing. Close it to give up the lease.
    """

    def __init__(self, directory: int, name: str) -> None:
        """Raises `FileNotFoundError` where the name does not exist, else `OSError`."""
        self.status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        self.fd, self.busy, self.leased = -1, False, False
        if not stat.S_ISREG(self.status.st_mode):
            self.identity = _special(self.status)
            return
        try:
            self.fd = os.open(name, _READ, dir_fd=directory)
        except OSError as problem:
            if problem.errno not in {errno.EACCES, errno.EPERM, errno.ELOOP}:
                raise
            self.identity = _special(self.status)
            return
        self._lease()
        self.identity = self._read()

    def undisturbed(self) -> bool:
        """Whether nobody writes, or waits to write, as far as leases can tell."""
        if self.busy:
            return False
        if sys.platform == "linux" and self.leased:
            return bool(fcntl.fcntl(self.fd, fcntl.F_GETLEASE) == fcntl.F_RDLCK)
        return True

    def close(self) -> None:
        """Give up lease and descriptor; twice is harmless."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _lease(self) -> None:
        if sys.platform != "linux":
            return
        try:
            # A broken lease signals SIGIO, which kills by default; SIGURG is ignored by default.
            fcntl.fcntl(self.fd, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            self.leased = True
        except OSError as problem:
            # Anything else means that this file system, or this owner, gives no leases.
            self.busy = problem.errno == errno.EAGAIN

    def _read(self) -> Identity:
        self.status = os.fstat(self.fd)
        if not stat.S_ISREG(self.status.st_mode):
            return _special(self.status)
        with os.fdopen(os.dup(self.fd), "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self.status = os.fstat(self.fd)
        mode = stat.S_IMODE(self.status.st_mode)
        return Identity(mode, self.status.st_size, digest, self.status.st_mtime_ns)


def _special(status: os.stat_result) -> Identity:
    return Identity(status.st_mode, status.st_size, "", status.st_mtime_ns)


def hold(directory: int, name: str) -> Hold | None:
    """A `Hold`, or `None` where nothing has that name. Raises `OSError`."""
    try:
        return Hold(directory, name)
    except FileNotFoundError:
        return None
