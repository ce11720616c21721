"""From a candidate to staged files and the steps that will put them into the workspace.

Nothing of the workspace is touched here: new versions are written into the stage folder, with
owner, mode and extended attributes (access lists are among them) of the files they replace.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from veriloop_tui.core.ports import Clock
from veriloop_tui.core.snapshot import Candidate, Change, Delete, Entry, Write
from veriloop_tui.errors import PromotionFailed, StaleBase
from veriloop_tui.store.promotion.beneath import Beneath
from veriloop_tui.store.promotion.exchange import on_same_mount
from veriloop_tui.store.promotion.hold import Hold, Identity
from veriloop_tui.store.promotion.journal import Create, Edit, MakeDirectory, Remove, Step
from veriloop_tui.store.promotion.mtime import SECOND, following_mtime
from veriloop_tui.store.promotion.stage_file import Attributes, write_staged

NEW_FILE_MODE = 0o644
NEW_DIRECTORY_MODE = 0o755
_ANY_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


@contextmanager
def failing_at(path: str) -> Iterator[None]:
    """Turn an `OSError` into `PromotionFailed` for this path."""
    try:
        yield
    except OSError as problem:
        raise PromotionFailed(path, problem.strerror or str(problem)) from problem


@dataclass(frozen=True, slots=True)
class Preparation:
    """What staging needs: the workspace, the open stage folder, the base's entries, and time."""

    beneath: Beneath
    stage: int
    base: Callable[[str], Entry | None]
    clock: Clock
    step: Callable[[str], None]

    def steps(self, candidate: Candidate) -> tuple[Step, ...]:
        """Stage everything and say how to apply it: removals, folders, edits, new files.

        Raises `StaleBase` where a file is not what the base holds, `PromotionFailed` where the
        change cannot be made. A write that changes neither bytes nor mode is no step.
        """
        _check_paths(candidate.paths)
        changes = sorted(candidate.changes, key=lambda change: change.path)
        stale = tuple(change.path for change in changes if not self._is_current(change))
        if stale:
            raise StaleBase(stale)
        removed = [change.path for change in changes if isinstance(change, Delete)]
        writes = [change for change in changes if isinstance(change, Write)]
        new = [write for write in writes if self.base(write.path) is None]
        missing = self._missing_directories((write.path for write in new), frozenset(removed))
        slots = map(str, itertools.count())
        with failing_at("the stage folder"):
            steps: tuple[Step, ...] = (
                *(self._remove(path, next(slots)) for path in removed),
                *(self._make_directory(path, next(slots)) for path in missing),
                *(self._edit(write, next(slots)) for write in writes if self._changes(write)),
                *(self._create(write, next(slots)) for write in new),
            )
            os.fsync(self.stage)
        return steps

    def _is_current(self, change: Change) -> bool:
        """Whether the workspace holds what the base does; raises where it may not be changed."""
        path, entry = change.path, self.base(change.path)
        if entry is not None and entry.kind != "file":
            raise PromotionFailed(path, f"it is a {entry.kind}, not a file")
        if entry is None and isinstance(change, Delete):
            raise PromotionFailed(path, "the base holds no such file to delete")
        with failing_at(path):
            found = self.beneath.look(path)
        with found or nullcontext():
            if entry is None or found is None:
                return entry is None and found is None
            if not as_identity(entry).matches(found.identity):
                return False
            self._check_writable(change, found.status)
        return True

    def _check_writable(self, change: Change, status: os.stat_result) -> None:
        path = change.path
        if isinstance(change, Write) and status.st_nlink > 1:
            others = "its other names (hard links) would be left with the old version"
            raise PromotionFailed(path, f"{others}; make it a file of its own")
        parent, name = self.beneath.parent(path)
        self._check_directory(path, parent)
        # The permission bits bind root too: a file without one is meant to stay as it is.
        if not status.st_mode & _ANY_WRITE or not os.access(name, os.W_OK, dir_fd=parent):
            raise PromotionFailed(path, "the file is read-only")

    def _check_directory(self, path: str, fd: int) -> None:
        if not os.fstat(fd).st_mode & _ANY_WRITE:
            raise PromotionFailed(path, "its folder is read-only")
        if not on_same_mount(self.stage, fd):
            raise PromotionFailed(path, "its folder is not on the workspace's own file system")

    def _missing_directories(
        self, paths: Iterable[str], removed: frozenset[str]
    ) -> tuple[str, ...]:
        """Folders that the new files need and that are not there, outermost first."""
        missing: set[str] = set()
        for path in paths:
            folders = list(itertools.accumulate(path.split("/")[:-1], "{}/{}".format))
            with failing_at(path):
                there = list(itertools.takewhile(lambda f: self._stays(f, removed), folders))
                self._check_directory(path, self.beneath.directory(there[-1] if there else ""))
            missing.update(folders[len(there) :])
        return tuple(sorted(missing))

    def _stays(self, folder: str, removed: frozenset[str]) -> bool:
        """Whether the folder is there; a file of that name that will be removed does not count."""
        if folder in removed:
            return False
        try:
            self.beneath.directory(folder)
        except FileNotFoundError:
            return False
        return True

    def _changes(self, write: Write) -> bool:
        entry = self.base(write.path)
        if entry is None:
            return False
        digest = hashlib.sha256(write.content).hexdigest()
        return digest != entry.digest or write.mode not in (None, entry.mode)

    def _remove(self, path: str, slot: str) -> Remove:
        with self._existing(path) as (_, before):
            return Remove(path, slot, before)

    def _make_directory(self, path: str, slot: str) -> MakeDirectory:
        os.mkdir(slot, NEW_DIRECTORY_MODE, dir_fd=self.stage)
        os.chmod(slot, NEW_DIRECTORY_MODE, dir_fd=self.stage)
        self.step(f"staged {path}")
        inode = os.stat(slot, dir_fd=self.stage, follow_symlinks=False).st_ino
        return MakeDirectory(path, slot, inode)

    def _edit(self, write: Write, slot: str) -> Edit:
        with self._existing(write.path) as (found, before), failing_at(write.path):
            old = found.status
            mode = stat.S_IMODE(old.st_mode) if write.mode is None else write.mode
            mtime = following_mtime(old.st_mtime_ns, self.clock)
            attributes = Attributes(mode, old.st_atime_ns, mtime, old.st_uid, old.st_gid)
            after = write_staged(self.stage, slot, write.content, attributes, found)
            self.step(f"staged {write.path}")
            return Edit(write.path, slot, before, after)

    def _create(self, write: Write, slot: str) -> Create:
        with failing_at(write.path):
            mode = NEW_FILE_MODE if write.mode is None else write.mode
            now = int(self.clock.now() * SECOND)
            attributes = Attributes(mode, now, now, os.geteuid(), self._new_group(write.path))
            after = write_staged(self.stage, slot, write.content, attributes, None)
            self.step(f"staged {write.path}")
            return Create(write.path, slot, after)

    def _new_group(self, path: str) -> int:
        """The group a file made in place would get: its folder's, where that is set-group-id."""
        status = os.fstat(self.beneath.directory(""))
        for folder in itertools.accumulate(path.split("/")[:-1], "{}/{}".format):
            try:
                status = os.fstat(self.beneath.directory(folder))
            except (FileNotFoundError, NotADirectoryError):
                break
        return status.st_gid if status.st_mode & stat.S_ISGID else os.getegid()

    @contextmanager
    def _existing(self, path: str) -> Iterator[tuple[Hold, Identity]]:
        """The live file and what the base says it is, which it must still be."""
        entry, found = self.base(path), self.beneath.look(path)
        if entry is None or found is None:
            raise StaleBase((path,))
        with found:
            before = as_identity(entry)
            if not before.matches(found.identity):
                raise StaleBase((path,))
            yield found, before


def as_identity(entry: Entry) -> Identity:
    """A base's file, as it must still be in the workspace."""
    return Identity(entry.mode, entry.size, entry.digest)


def _check_paths(paths: tuple[str, ...]) -> None:
    for path in paths:
        parts = path.split("/")
        if "\0" in path or any(part in ("", ".", "..") for part in parts):
            raise PromotionFailed(path, "it is not a path inside the workspace")
        if paths.count(path) > 1:
            raise PromotionFailed(path, "the candidate changes it twice")
