"""Takes an open promotion back, or finishes it: the same code after an error and after a crash.

What is to be done is read from what lies where, never from what was done last, so it may be broken
off and started again at any instant. A file of the user's is never overwritten or dropped:
where theirs has come in between, theirs is what the path holds in the end, and what cannot go back
goes to the conflict folder.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from veriloop_tui.core.ports import Clock
from veriloop_tui.store.promotion.beneath import Beneath
from veriloop_tui.store.promotion.exchange import Renames, exists, mend
from veriloop_tui.store.promotion.hold import Hold, Identity, hold
from veriloop_tui.store.promotion.journal import Create, Edit, MakeDirectory, Remove, Step
from veriloop_tui.store.promotion.mtime import SECOND, following_mtime

_TURNS = 200
_TURN_SECONDS = 0.01


def hold_when_idle(look: Callable[[], Hold | None], pause: Callable[[float], None]) -> Hold | None:
    """A hold on a file nobody is writing to; after two seconds of waiting, a busy one."""
    for _ in range(_TURNS):
        found = look()
        if found is None or not found.busy:
            return found
        found.close()
        pause(_TURN_SECONDS)
    return look()


@dataclass(frozen=True, slots=True)
class Settlement:
    """Steps of one promotion between the open stage folder and the workspace.

    `conflicts` is the folder for what cannot go back; `kept` collects the files put there,
    `returned` the paths where a replaced file went back because somebody wrote into it.
    Methods raise `OSError`, and may then be called again.
    """

    beneath: Beneath
    stage: int
    stage_path: Path
    renames: Renames
    conflicts: Path
    step: Callable[[str], None]
    pause: Callable[[float], None]
    kept: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)

    def undo(self, steps: tuple[Step, ...]) -> None:
        """Put everything back as it was before the first step, in reverse order."""
        for step in steps:
            mend(self.stage, step.slot)
        for step in reversed(steps):
            self._take_back(step)
            self.step(f"undone {step.path}")
        self.beneath.sync()
        os.fsync(self.stage)
        self.step("undo synced")
        for step in steps:
            match step:
                case Edit():
                    self._discard(step, step.after, step.before)
                case Create():
                    self._discard(step, step.after, None)
                case Remove() | MakeDirectory():
                    pass
                case _:
                    assert_never(step)

    def renew(self, steps: tuple[Step, ...], clock: Clock) -> None:
        """Give the replaced files a later mtime before they go back after a crash.

        The new version may have been in place for long, and something may have been built from it.
        """
        for step in steps:
            mend(self.stage, step.slot)
            if isinstance(step, Edit):
                self._renew(step, clock)

    def _renew(self, step: Edit, clock: Clock) -> None:
        found = hold(self.stage, step.slot)
        if found is None:
            return
        with found:
            since, old = step.after.mtime_ns or 0, found.status
            if step.before.matches(found.identity) and old.st_mtime_ns < since + SECOND:
                mtime = following_mtime(max(since, old.st_mtime_ns), clock)
                os.utime(found.fd, ns=(old.st_atime_ns, mtime))
                self.step(f"renewed {step.path}")

    def finish(self, steps: tuple[Step, ...]) -> None:
        """Drop the replaced files, unless somebody wrote into one meanwhile: it goes back."""
        for step in steps:
            match step:
                case Edit():
                    mend(self.stage, step.slot)
                    self._discard(step, step.before, step.after)
                case Remove():
                    self._discard(step, step.before, None)
                case Create() | MakeDirectory():
                    pass
                case _:
                    assert_never(step)

    def _take_back(self, step: Step) -> None:
        in_slot = exists(self.stage, step.slot)
        match step:
            case Edit():
                if in_slot and not self._in_slot_is(step.slot, step.after, idle=False):
                    self._swap_in(step, step.after)
            case Create():
                if not in_slot:
                    self._take_away(step)
            case Remove():
                if in_slot:
                    self._move_in(step)
            case MakeDirectory():
                if not in_slot:
                    self._remove_directory(step)
            case _:
                assert_never(step)

    def _discard(self, step: Step, ours: Identity, at_path: Identity | None) -> None:
        """Unlink what lies in the slot if it is `ours` and idle, else give it to the path.

        `at_path` is what we put at the path, `None` where it should be free.
        """
        found = hold_when_idle(lambda: hold(self.stage, step.slot), self.pause)
        if found is None:
            return
        with found:
            if ours.matches(found.identity) and found.undisturbed():
                os.unlink(step.slot, dir_fd=self.stage)
                self.step(f"discarded {step.path}")
                return
        self.returned.append(step.path)
        if at_path is None:
            self._move_in(step)
        else:
            self._swap_in(step, at_path)

    def _swap_in(self, step: Step, expected: Identity) -> None:
        """Give the path what lies in the slot; the slot gets `expected`, which lies at the path.

        If the path holds something else, that is the user's and newer: it stays, or returns if it
        came while we exchanged, and the slot's goes to the conflict folder.
        """
        if not self._at_path_is(step.path, expected):
            self._keep(step)
            return
        parent, name = self.beneath.parent(step.path)
        awaited = expected
        while True:
            put = self._identity_in(step.slot)
            try:
                self.renames.exchange(self.stage, step.slot, parent, name)
            except FileNotFoundError:
                self._keep(step)
                return
            if self._in_slot_is(step.slot, awaited, idle=awaited is expected):
                break
            # Somebody replaced the file between look and exchange: the newest must end at the path.
            awaited = put
        if awaited is not expected:
            self._keep(step)

    def _move_in(self, step: Step) -> None:
        """Move what lies in the slot to the path, or aside if something has come there."""
        try:
            parent, name = self.beneath.parent(step.path)
            self.renames.move(self.stage, step.slot, parent, name)
        except (FileExistsError, FileNotFoundError, NotADirectoryError):
            self._keep(step)

    def _take_away(self, step: Create) -> None:
        """Move our new file back into its slot, unless the user has made it theirs."""
        if not self._at_path_is(step.path, step.after):
            return
        parent, name = self.beneath.parent(step.path)
        with suppress(FileNotFoundError):
            self.renames.move(parent, name, self.stage, step.slot)
            if not self._in_slot_is(step.slot, step.after, idle=True):
                self._move_in(step)

    def _remove_directory(self, step: MakeDirectory) -> None:
        """Remove a folder that we made, if it is still that one and still empty."""
        with suppress(FileNotFoundError, NotADirectoryError):
            parent, name = self.beneath.parent(step.path)
            if os.stat(name, dir_fd=parent, follow_symlinks=False).st_ino != step.inode:
                return
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError as problem:
                if problem.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise

    def _keep(self, step: Step) -> None:
        """Move what lies in the slot to the conflict folder."""
        target = self.conflicts / step.path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.move(self.stage_path / step.slot, target)
        os.sync()
        self.kept.append(str(target))
        self.step(f"kept {step.path}")

    def _identity_in(self, slot: str) -> Identity:
        with Hold(self.stage, slot) as found:
            return found.identity

    def _in_slot_is(self, slot: str, expected: Identity, *, idle: bool) -> bool:
        with Hold(self.stage, slot) as found:
            return expected.matches(found.identity) and (found.undisturbed() or not idle)

    def _at_path_is(self, path: str, expected: Identity) -> bool:
        found = self.beneath.look(path)
        if found is None:
            return False
        with found:
            return expected.matches(found.identity) and found.undisturbed()
