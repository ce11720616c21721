"""The forward half of a promotion: look again, exchange, look at what was displaced."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

from veriloop_tui.errors import PromotionFailed, StaleBase
from veriloop_tui.store.promotion.hold import Hold, Identity, hold
from veriloop_tui.store.promotion.journal import Create, Edit, MakeDirectory, Remove, Step
from veriloop_tui.store.promotion.prepare import failing_at
from veriloop_tui.store.promotion.settle import Settlement, hold_when_idle


@dataclass(frozen=True, slots=True)
class Exchange:
    """Applies steps; an error leaves the rest to `Settlement`.

    The leases taken in `check` last as long as `leases`: who wants to write into a file that is
    being replaced waits that long, and we see that they wait.
    Methods raise `StaleBase` and `PromotionFailed`.
    """

    ground: Settlement
    steps: tuple[Step, ...]
    leases: ExitStack
    held: dict[str, Hold] = field(default_factory=dict)

    def check(self) -> bool:
        """Look at every path again; says whether some file gave no lease."""
        stale: list[str] = []
        for step in self.steps:
            with failing_at(step.path):
                found = hold_when_idle(
                    partial(self.ground.beneath.look_afresh, step.path), self.ground.pause
                )
            if found is not None:
                self.leases.enter_context(found)
                self.held[step.path] = found
            match step:
                case Edit(before=before) | Remove(before=before):
                    if found is None or not before.matches(found.identity):
                        stale.append(step.path)
                    elif found.busy:
                        raise PromotionFailed(step.path, "another program has it open for writing")
                case Create() | MakeDirectory():
                    if found is not None and not self._will_be_removed(step.path):
                        stale.append(step.path)
                case _:
                    assert_never(step)
        if stale:
            raise StaleBase(tuple(stale))
        with failing_at("the workspace"):
            self.ground.step("checked")
        return any(not found.leased for found in self.held.values())

    def apply(self) -> None:
        """Exchange every file and make the names durable."""
        for step in self.steps:
            with failing_at(step.path):
                try:
                    self._apply(step)
                except (FileExistsError, FileNotFoundError, NotADirectoryError):
                    raise StaleBase((step.path,)) from None
                self.ground.step(f"exchanged {step.path}")
                if not self._displaced_as_expected(step):
                    raise StaleBase((step.path,))
        with failing_at("the workspace"):
            self.ground.beneath.sync()
            os.fsync(self.ground.stage)
            self.ground.step("synced")

    def confirm(self) -> None:
        """See that each path shows the new version, and that nobody writes to an old one."""
        stale = []
        for step in self.steps:
            with failing_at(step.path):
                if not (self._displaced_as_expected(step) and self._shows_result(step)):
                    stale.append(step.path)
        if stale:
            raise StaleBase(tuple(stale))

    def _will_be_removed(self, path: str) -> bool:
        return any(isinstance(step, Remove) and step.path == path for step in self.steps)

    def _apply(self, step: Step) -> None:
        stage, renames = self.ground.stage, self.ground.renames
        parent, name = self.ground.beneath.parent(step.path)
        match step:
            case Edit():
                renames.exchange(stage, step.slot, parent, name)
            case Remove():
                renames.move(parent, name, stage, step.slot)
            case Create() | MakeDirectory():
                renames.move(stage, step.slot, parent, name)
            case _:
                assert_never(step)

    def _displaced_as_expected(self, step: Step) -> bool:
        match step:
            case Edit(before=before) | Remove(before=before):
                found = hold(self.ground.stage, step.slot)
                return _is(found, before) and self.held[step.path].undisturbed()
            case Create() | MakeDirectory():
                return True
            case _:
                assert_never(step)

    def _shows_result(self, step: Step) -> bool:
        found = self.ground.beneath.look_afresh(step.path)
        match step:
            case Edit(after=after) | Create(after=after):
                return _is(found, after)
            case Remove():
                if found is not None:
                    found.close()
                return found is None or self._is_made(step.path)
            case MakeDirectory():
                return found is not None and found.status.st_ino == step.inode
            case _:
                assert_never(step)

    def _is_made(self, path: str) -> bool:
        return any(isinstance(step, MakeDirectory) and step.path == path for step in self.steps)


def _is(found: Hold | None, expected: Identity) -> bool:
    if found is None:
        return False
    with found:
        return expected.matches(found.identity) and found.undisturbed()
