"""The folder behind one stage: made fresh, locked while in use, removed whatever is in it."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veriloop_tui.errors import StagingUnavailable

_AREAS = "areas.lock"
_LOCK = ".lock"


@contextmanager
def stage_area(scratch_dir: Path, rung: str) -> Iterator[Path]:
    """A fresh private folder in `scratch_dir`, gone at the end. Raises `StagingUnavailable`.

    The lock beside it tells `sweep` that the process which made it is still alive.
    """
    try:
        scratch_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(scratch_dir / _AREAS):
            area = Path(tempfile.mkdtemp(prefix="stage-", dir=scratch_dir))
            lock = _open_lock(area.with_suffix(_LOCK))
            fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise StagingUnavailable(rung, f"{scratch_dir} cannot be used ({error})") from error
    try:
        yield area
    finally:
        remove_tree(area)
        area.with_suffix(_LOCK).unlink(missing_ok=True)
        os.close(lock)


def sweep(scratch_dir: Path) -> None:
    """Remove what killed processes left behind in `scratch_dir`."""
    if not scratch_dir.is_dir():
        return
    with _locked(scratch_dir / _AREAS):
        for path in scratch_dir.glob(f"stage-*{_LOCK}"):
            lock = _open_lock(path)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            else:
                area = path.with_suffix("")
                if area.is_dir() and not area.is_symlink():
                    remove_tree(area)
                path.unlink(missing_ok=True)
            finally:
                os.close(lock)


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = _open_lock(path)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def remove_tree(top: Path) -> None:
    """Remove a folder of ours, however deep it is and whatever modes commands left in it.

    Inner folders are moved up into one flat place before they are emptied, so that no path grows
    too long and no recursion too deep. Links are removed, never followed.
    """
    top.chmod(0o700)
    flat = Path(tempfile.mkdtemp(dir=top))
    pending = [top]
    moved = 0
    while pending:
        folder = pending.pop()
        with os.scandir(folder) as entries:
            found = list(entries)
        for entry in found:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)  # noqa: PTH108 - tens of thousands of files
            elif entry.path != str(flat):
                inner = Path(entry.path)
                inner.chmod(0o700)  # moving a folder needs write permission on it
                moved += 1
                pending.append(inner.rename(flat / str(moved)))
        if folder != top:
            folder.rmdir()
    flat.rmdir()
    top.rmdir()


def is_private(folder: Path) -> bool:
    """Whether `folder` is a real folder of this user that nobody else can enter."""
    found = folder.lstat()
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.geteuid()
        and not stat.S_IMODE(found.st_mode) & 0o077
    )
