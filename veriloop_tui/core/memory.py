"""Exploration memory: what was tried against an incumbent and turned down.

It shapes the next proposal and saves repeated runs; it has no say in what persists.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from veriloop_tui.core.canonical import digest
from veriloop_tui.core.obligation import CheckId
from veriloop_tui.core.snapshot import SnapshotId
from veriloop_tui.core.transition import Decision, Label, Transition

_FINAL = frozenset({Label.NO_PROGRESS, Label.PROTECTED_REGRESSION, Label.INCOMPARABLE})


@dataclass(frozen=True, slots=True)
class Displacement:
    """One rejected candidate: where from, where to, and what it did.

    `diff` is a bounded, normalised unified diff. `tree` is empty for an answer that was no
    candidate; `answer` is the fingerprint of the answer's text.
    """

    base: SnapshotId
    tree: str
    answer: str
    label: Label
    decision: Decision
    worsened: tuple[CheckId, ...]
    diff: str
    reason: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True)
class ExplorationMemory:
    """The last `limit` displacements, oldest first."""

    entries: tuple[Displacement, ...] = ()
    limit: int = 64

    def remember(self, displacement: Displacement) -> ExplorationMemory:
        """This memory with one more displacement, the oldest dropped beyond the limit."""
        return replace(self, entries=(*self.entries, displacement)[-self.limit :])

    def recall(self, base: SnapshotId, tree: SnapshotId) -> Displacement | None:
        """The final rejection of this very candidate, by the rule or by the user, if any.

        Partial and unrankable candidates may be tried again, so they are not recalled.
        """
        for entry in reversed(self.entries):
            final = entry.label in _FINAL or entry.decision is Decision.USER_REJECTED
            if final and entry.base == base and entry.tree == tree:
                return entry
        return None

    def against(self, base: SnapshotId) -> tuple[Displacement, ...]:
        """What was rejected against this incumbent, oldest first."""
        return tuple(entry for entry in self.entries if entry.base == base)

    @property
    def memory_digest(self) -> str:
        """Hex sha256 over the entries."""
        return digest(self.entries)


def repeated(entry: Displacement) -> Transition:
    """The transition of a candidate that is a repetition of `entry`."""
    return Transition(
        entry.label,
        None,
        worsened=entry.worsened,
        reason="the same change was already rejected against this incumbent",
    )
