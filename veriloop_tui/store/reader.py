"""Reading one file or link of a live workspace, so that what is read is of one moment.

Files are opened with `O_NOFOLLOW` below an open directory, so a name that becomes a link meanwhile
leads nowhere, and with `O_NONBLOCK`, so one that becomes a pipe holds nobody up.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from veriloop_tui.core.snapshot import Entry
from veriloop_tui.errors import SnapshotRefused
from veriloop_tui.store.blob import read_from_start

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TRIES = 5

StatKey = tuple[int, int, int, int, int]
"""mtime and ctime in nanoseconds, size in bytes, inode, whole mode."""

Absorb = Callable[[int, int], tuple[str, int]]
"""Given an open file and its size: the sha256 of its bytes and how many were read."""

AbsorbLink = Callable[[bytes], str]
"""Given a link's target: its sha256."""


def hash_file(fd: int, size: int) -> tuple[str, int]:
    """An `Absorb` that keeps nothing."""
    sha, read = hashlib.sha256(), 0
    for chunk in read_from_start(fd, size + 1):
        sha.update(chunk)
        read += len(chunk)
    return sha.hexdigest(), read


def hash_link(target: bytes) -> str:
    """An `AbsorbLink` that keeps nothing."""
    return hashlib.sha256(target).hexdigest()


def stat_key(seen: os.stat_result) -> StatKey:
    """What must be equal for a file to count as unchanged."""
    return (seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino, seen.st_mode)


class FileReader:
    """Reads files and links below an open root; keeps the directory of the last one open."""

    def __init__(self, root: Path, fd: int, absorb: Absorb, absorb_link: AbsorbLink) -> None:
        self._root = root
        self._fd = fd
        self._absorb = absorb
        self._absorb_link = absorb_link
        self._held = ("", os.dup(fd))

    def __enter__(self) -> FileReader:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._held[1])

    def read(self, path: str) -> tuple[StatKey, Entry] | None:
        """Key and entry of a file or link, both of one moment; `None` if it is gone."""
        for _ in range(_TRIES):
            try:
                parent, name = self._parent(path)
                seen = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if stat.S_ISLNK(seen.st_mode):
                    found = self._link(parent, name, path, seen)
                elif stat.S_ISREG(seen.st_mode):
                    found = self._file(parent, name, path)
                else:
                    return None
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR):
                    return None
                if error.errno == errno.ELOOP:
                    continue
                raise SnapshotRefused(
                    str(self._root), f"{path} cannot be read ({error.strerror})"
                ) from error
            if found is not None:
                return found
        raise SnapshotRefused(str(self._root), f"{path} keeps changing while it is read")

    def stat(self, path: str) -> os.stat_result | None:
        """`lstat` of a path whose directories are real ones."""
        try:
            parent, name = self._parent(path)
            return os.stat(name, dir_fd=parent, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise SnapshotRefused(
                str(self._root), f"{path} cannot be read ({error.strerror})"
            ) from error

    def _parent(self, path: str) -> tuple[int, str]:
        above, _, name = path.rpartition("/")
        if self._held[0] != above:
            fd = os.dup(self._fd)
            try:
                for directory in above.split("/") if above else ():
                    inner = os.open(directory, OPEN_DIRECTORY, dir_fd=fd)
                    os.close(fd)
                    fd = inner
            except OSError:
                os.close(fd)
                raise
            os.close(self._held[1])
            self._held = (above, fd)
        return self._held[1], name

    def _file(self, parent: int, name: str, path: str) -> tuple[StatKey, Entry] | None:
        fd = os.open(name, OPEN_FILE, dir_fd=parent)
        try:
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                return None
            digest, size = self._absorb(fd, before.st_size)
            after = os.fstat(fd)
        finally:
            os.close(fd)
        if size != before.st_size or stat_key(before) != stat_key(after):
            return None
        return stat_key(after), Entry(path, "file", stat.S_IMODE(after.st_mode), digest, size)

    def _link(
        self, parent: int, name: str, path: str, seen: os.stat_result
    ) -> tuple[StatKey, Entry] | None:
        target = os.fsencode(os.readlink(name, dir_fd=parent))
        if stat_key(os.stat(name, dir_fd=parent, follow_symlinks=False)) != stat_key(seen):
            return None
        # A link's own permission bits mean nothing and differ between systems.
        return stat_key(seen), Entry(path, "symlink", 0o777, self._absorb_link(target), len(target))
