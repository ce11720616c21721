"""Renames that never overwrite: exchange two names, or move to a name that is free.

All names are relative to open directories, so nothing is reached through a symlink.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from typing import Protocol

_ASIDE = ".aside"


class Renames(Protocol):
    """How two names are exchanged and how one is moved. Both raise `OSError`."""

    def exchange(self, stage: int, slot: str, parent: int, name: str) -> None:
        """Swap the files at `stage/slot` and `parent/name`."""
        ...

    def move(self, source: int, old: str, target: int, new: str) -> None:
        """Move `source/old` to `target/new`; `FileExistsError` where that name is taken."""
        ...


class KernelRenames:
    """The kernel's own atomic forms: `renameat2` on Linux, `renameatx_np` on macOS."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        name, self._exchange, self._keep = (
            ("renameatx_np", 2, 4) if sys.platform == "darwin" else ("renameat2", 2, 1)
        )
        if not hasattr(libc, name):
            raise OSError(errno.ENOSYS, f"this C library has no {name}")
        self._call = getattr(libc, name)
        self._call.argtypes = (
            *(ctypes.c_int, ctypes.c_char_p) * 2,
            ctypes.c_uint,
        )

    def exchange(self, stage: int, slot: str, parent: int, name: str) -> None:
        self._rename(stage, slot, parent, name, self._exchange)

    def move(self, source: int, old: str, target: int, new: str) -> None:
        self._rename(source, old, target, new, self._keep)

    def _rename(self, source: int, old: str, target: int, new: str, flag: int) -> None:
        if self._call(source, os.fsencode(old), target, os.fsencode(new), flag):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), old, None, new)


class PlainRenames:
    """For file systems without an exchange: hard link and rename.

    Between the link and the rename lies a small race: a file that somebody else renames into place
    in those microseconds is overwritten. `mend` repairs what a kill in between leaves.
    """

    def __init__(self, step: Callable[[str], None]) -> None:
        self._step = step

    def exchange(self, stage: int, slot: str, parent: int, name: str) -> None:
        os.link(name, slot + _ASIDE, src_dir_fd=parent, dst_dir_fd=stage, follow_symlinks=False)
        self._step("linked aside")
        os.rename(slot, name, src_dir_fd=stage, dst_dir_fd=parent)
        self._step("renamed over")
        os.rename(slot + _ASIDE, slot, src_dir_fd=stage, dst_dir_fd=stage)

    def move(self, source: int, old: str, target: int, new: str) -> None:
        if exists(target, new):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)


def mend(stage: int, slot: str) -> None:
    """Complete, or take back, a `PlainRenames.exchange` that was broken off in the middle."""
    if not exists(stage, slot + _ASIDE):
        return
    if exists(stage, slot):
        os.unlink(slot + _ASIDE, dir_fd=stage)
    else:
        os.rename(slot + _ASIDE, slot, src_dir_fd=stage, dst_dir_fd=stage)


def kernel_renames(directory: int) -> KernelRenames | None:
    """The kernel's renames if they work in this directory (tried on two empty files), else None."""
    names = (".exchange-probe-a", ".exchange-probe-b")
    try:
        renames = KernelRenames()
        for name in names:
            os.close(
                os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=directory)
            )
        renames.exchange(directory, names[0], directory, names[1])
    except OSError as problem:
        if problem.errno not in {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}:
            raise
        return None
    finally:
        for name in names:
            if exists(directory, name):
                os.unlink(name, dir_fd=directory)
    return renames


def exists(directory: int, name: str) -> bool:
    """Whether the directory has that name, whatever it is."""
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def on_same_mount(first: int, second: int) -> bool:
    """Whether files can be renamed between two open directories. Touches neither of them.

    Two mounts of one device have one st_dev and still refuse; the kernel says so (EXDEV) before
    it looks for the file, so a name that does not exist is enough to ask with.
    """
    if os.fstat(first).st_dev != os.fstat(second).st_dev:
        return False
    absent = f".veriloop-absent-{os.getpid()}"
    try:
        os.rename(absent, absent, src_dir_fd=first, dst_dir_fd=second)
    except FileNotFoundError:
        return True
    except OSError as problem:
        if problem.errno != errno.EXDEV:
            raise
    return False
