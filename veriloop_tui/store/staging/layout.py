"""Lays a candidate's changes out over a base: into an overlay's upper folder or into a copy."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import assert_never

from veriloop_tui.core.snapshot import Change, Delete, Write
from veriloop_tui.errors import InvalidEdit

_SECOND_NS = 1_000_000_000

Hide = Callable[[Path, Path], None]
"""`hide(base_path, target_path)` makes an existing path of the base vanish from the target."""


def lay_out(changes: tuple[Change, ...], base: Path, target: Path, hide: Hide) -> None:
    """Make `target`, seen over `base`, hold the changes; `base` is only read.

    A written file gets a modification time at least one second after the base's, and compiled
    Python of a changed file is hidden: an interpreter takes a compiled file for fresh when size
    and modification time in whole seconds agree, and would run the old code. Raises `InvalidEdit`
    for a path that escapes or runs through a link.
    """
    for change in changes:
        _confined(base, change)
    for change in changes:
        if isinstance(change, Delete):
            _make_parents(base, target, change.path)
            hide(base / change.path, target / change.path)
    for change in changes:
        match change:
            case Write():
                _write(change, base, target, hide)
            case Delete():
                pass
            case _:
                assert_never(change)
        _hide_bytecode(base, target, change.path, hide)


def whiteout(base_path: Path, target_path: Path) -> None:
    """Hide a path of an overlay's lower folder."""
    if os.path.lexists(base_path) and not os.path.lexists(target_path):
        os.mknod(target_path, stat.S_IFCHR | 0o600, os.makedev(0, 0))


def unlink(_base_path: Path, target_path: Path) -> None:
    """Remove a path from a copy."""
    target_path.unlink(missing_ok=True)


def _confined(base: Path, change: Change) -> None:
    path = change.path
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise InvalidEdit("the path leads out of the workspace", path)
    folder = base
    # A link itself may be deleted: that does not follow it.
    for part in parts[:-1] if isinstance(change, Delete) else parts:
        folder = folder / part
        if folder.is_symlink():
            raise InvalidEdit("the path runs through a symbolic link", path)


def _make_parents(base: Path, target: Path, path: str) -> None:
    for parent in reversed(PurePosixPath(path).parents[:-1]):
        folder, original = target / parent, base / parent
        if folder.is_dir():
            continue
        folder.unlink(missing_ok=True)  # a file of the base that the same candidate deletes
        folder.mkdir()
        folder.chmod(stat.S_IMODE(original.lstat().st_mode) if original.is_dir() else 0o755)


def _write(change: Write, base: Path, target: Path, hide: Hide) -> None:
    original, written = base / change.path, target / change.path
    _make_parents(base, target, change.path)
    try:
        before = original.lstat()
    except (FileNotFoundError, NotADirectoryError):
        before = None
    replaced = before is not None and stat.S_ISREG(before.st_mode)
    if written.is_dir():
        shutil.rmtree(written)  # only folders that the candidate emptied can be here
    written.unlink(missing_ok=True)
    written.write_bytes(change.content)
    mode = change.mode
    if mode is None:
        mode = stat.S_IMODE(before.st_mode) if before is not None and replaced else 0o644
    written.chmod(mode)
    if before is not None:
        now = written.stat().st_mtime_ns
        moved_on = max(now, before.st_mtime_ns + _SECOND_NS)
        os.utime(written, ns=(moved_on, moved_on))


def _hide_bytecode(base: Path, target: Path, path: str, hide: Hide) -> None:
    source = PurePosixPath(path)
    if source.suffix != ".py":
        return
    cache = base / source.parent / "__pycache__"
    if cache.is_symlink() or not cache.is_dir():
        return
    for compiled in list(cache.glob("*.pyc")):
        if compiled.name.startswith(f"{source.stem}."):
            inside = str(source.parent / "__pycache__" / compiled.name)
            _make_parents(base, target, inside)
            hide(compiled, target / inside)
