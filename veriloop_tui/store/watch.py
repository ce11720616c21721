"""Hints that files of a workspace may have changed. Hints only: the truth is `Snapshots.drift`.

Events get lost in a busy process, when the kernel's queue overflows, and for mapped files; nothing
may rely on them. Directories that tools fill are neither subscribed to nor reported. Where the
system refuses to watch, or the files are on another machine, the hint comes every few seconds.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Protocol

import psutil
from watchdog.events import (
    DirAttribEvent,
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileAttribEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer

from veriloop_tui.store.ignore import is_excluded_name
from veriloop_tui.store.scan import MAX_DEPTH

NOT_SUBSCRIBED = frozenset(
    {".git", ".hg", ".svn", "node_modules", ".venv", "venv", "target", ".tox", ".nox"}
)
_NOT_REPORTED = NOT_SUBSCRIBED | {
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
}
_MOST_SUBSCRIPTIONS = 64
_MOST_QUIET_PERIODS = 10
_FAR_AWAY = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs")
# Opening and reading are left out: the scans that follow a hint do both.
_EVENTS: list[type[FileSystemEvent]] = [
    FileCreatedEvent,
    FileModifiedEvent,
    FileClosedEvent,
    FileAttribEvent,
    FileDeletedEvent,
    FileMovedEvent,
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    DirAttribEvent,
]


class Subscriptions(Protocol):
    """What is needed of a watchdog observer."""

    def schedule(
        self,
        event_handler: FileSystemEventHandler,
        path: str,
        *,
        recursive: bool = False,
        event_filter: list[type[FileSystemEvent]] | None = None,
    ) -> object:
        """Subscribe to a directory. Raises `OSError` where the system has no room."""
        ...

    def start(self) -> None:
        """Begin. Raises `OSError` where the system has no room."""
        ...

    def stop(self) -> None:
        """End, without waiting."""
        ...


@contextmanager
def watch(
    root: Path,
    changed: Callable[[], None],
    *,
    debounce: float,
    poll_every: float,
    notice: Callable[[str], None],
    observer: Callable[[], Subscriptions] = Observer,
) -> Iterator[None]:
    """Call `changed` from another thread, once per burst of events, while the context lives.

    A burst ends after `debounce` seconds of quiet. Where watching is impossible, `notice` is told
    so in one sentence and `changed` is called every `poll_every` seconds instead.
    """
    _keep_watchdog_off_the_screen()
    happened, ended = threading.Event(), threading.Event()
    problem = _far_away(root)
    watching = observer()
    if not problem:
        problem = _subscribe(watching, root.resolve(), happened)
    if problem:
        notice(f"Files are looked at every {poll_every:g} seconds: {problem}.")
    arguments = (changed, happened, ended, poll_every if problem else debounce)
    teller = threading.Thread(
        target=_poll if problem else _debounce, args=arguments, name="watch", daemon=True
    )
    teller.start()
    try:
        yield
    finally:
        ended.set()
        happened.set()
        watching.stop()
        teller.join()


class _Hint(FileSystemEventHandler):
    def __init__(self, root: Path, happened: threading.Event) -> None:
        self._root = root
        self._happened = happened

    def on_any_event(self, event: FileSystemEvent) -> None:
        paths = (os.fsdecode(path) for path in (event.src_path, event.dest_path) if path)
        if any(self._counts(path) for path in paths):
            self._happened.set()

    def _counts(self, path: str) -> bool:
        parts = PurePath(os.path.relpath(path, self._root)).parts
        return not any(part in _NOT_REPORTED or is_excluded_name(part) for part in parts)


def _subscribe(watching: Subscriptions, root: Path, happened: threading.Event) -> str:
    """Subscribe to all that is to be watched; what stood in the way, empty if nothing did."""
    handler = _Hint(root, happened)
    places = subscriptions(root)
    if len(places) > _MOST_SUBSCRIPTIONS:
        return "derived directories lie in too many places to watch around them"
    try:
        for place, recursive in places:
            watching.schedule(handler, place, recursive=recursive, event_filter=_EVENTS)
        watching.start()
    except OSError as error:
        watching.stop()
        if error.errno in (errno.ENOSPC, errno.EMFILE):
            return f"the system's limit of watched directories is reached ({error.strerror})"
        return f"the system cannot watch this folder ({error.strerror})"
    return ""


def subscriptions(root: Path) -> tuple[tuple[str, bool], ...]:
    """The fewest directories to subscribe to, each with whether all below it is meant too."""

    def visit(folder: str, depth: int) -> tuple[bool, list[tuple[str, bool]]]:
        """Whether nothing below is left out, and the subscriptions if something is."""
        whole, below, inner = True, list[tuple[str, bool]](), list[os.DirEntry[str]]()
        if depth > MAX_DEPTH:
            return whole, below
        with suppress(OSError), os.scandir(folder) as listing:
            inner = [item for item in listing if item.is_dir(follow_symlinks=False)]
        for item in inner:
            if item.name in NOT_SUBSCRIBED or is_excluded_name(item.name):
                whole = False
                continue
            clean, parts = visit(item.path, depth + 1)
            whole = whole and clean
            below += [(item.path, True)] if clean else parts
        return whole, [(folder, False), *below]

    whole, parts = visit(str(root), 0)
    return ((str(root), True),) if whole else tuple(parts)


def _debounce(
    changed: Callable[[], None], happened: threading.Event, ended: threading.Event, quiet: float
) -> None:
    while True:
        happened.wait()
        for _ in range(_MOST_QUIET_PERIODS):
            happened.clear()
            if ended.is_set() or not happened.wait(quiet):
                break
        if ended.is_set():
            return
        changed()


def _poll(
    changed: Callable[[], None], happened: threading.Event, ended: threading.Event, period: float
) -> None:
    del happened  # nothing sets it where nothing is watched
    while not ended.wait(period):
        changed()


def _far_away(root: Path) -> str:
    """Why events cannot come from this file system, empty if they can."""
    resolved = root.resolve()
    mounts = [m for m in psutil.disk_partitions(all=True) if resolved.is_relative_to(m.mountpoint)]
    nearest = max(mounts, key=lambda mount: len(mount.mountpoint), default=None)
    if nearest is not None and nearest.fstype.startswith(_FAR_AWAY):
        return f"the folder is on a network file system ({nearest.fstype})"
    return ""


def _keep_watchdog_off_the_screen() -> None:
    """Its warnings (nested new directories cause long ones) would be written over the app."""
    warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"watchdog\.")
    logger = logging.getLogger("watchdog")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
