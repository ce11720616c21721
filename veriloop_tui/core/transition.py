"""The rule: what a candidate's measurement means for its persistence.

A candidate with rank r' replaces the incumbent with rank r only if r'[j] <= r[j] for every check
j and r'[j] < r[j] for at least one. The label follows from the ranks alone; the decision is what
was then done.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from veriloop_tui.core.obligation import (
    CheckId,
    Contract,
    Measurement,
    Partial,
    Ranked,
    Unrankable,
)
from veriloop_tui.core.rank import Rank, movements, rank_after


class Label(StrEnum):
    """What a transition is. `OPEN` is a run that was stopped early, so its label is not known."""

    STRICT_PROGRESS = "strict-progress"
    NO_PROGRESS = "no-progress"
    PROTECTED_REGRESSION = "protected-regression"
    INCOMPARABLE = "incomparable"
    INVALID = "invalid"
    UNRANKABLE = "unrankable"
    OPEN = "open"


class Decision(StrEnum):
    """What was done with a candidate."""

    COMMITTED = "committed"
    RULE_REJECTED = "rule-rejected"
    USER_REJECTED = "user-rejected"
    SUPERSEDED = "superseded"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class Transition:
    """A candidate against its incumbent.

    `rank` is the candidate's, `None` where it could not be ranked. `reason` is one sentence for
    the labels that ranks do not explain. `equal` counts the checks that did not move.
    """

    label: Label
    rank: Rank | None
    improved: tuple[CheckId, ...] = ()
    worsened: tuple[CheckId, ...] = ()
    revealed: tuple[CheckId, ...] = ()
    equal: int = 0
    reason: str = ""

    @property
    def may_commit(self) -> bool:
        """Whether the rule allows this candidate to persist."""
        return self.label is Label.STRICT_PROGRESS

    @property
    def zero_rank(self) -> bool:
        """Strict progress that satisfies every check with none quarantined."""
        return self.may_commit and self.rank is not None and self.rank.is_zero

    @property
    def partial(self) -> bool:
        """Whether the run was stopped early."""
        return self.label is Label.OPEN


def invalid(reason: str) -> Transition:
    """The transition of an answer that is no candidate and was never run."""
    return Transition(Label.INVALID, None, reason=reason)


def unrankable(reason: str) -> Transition:
    """The transition of a candidate that the verifier could not rank."""
    return Transition(Label.UNRANKABLE, None, reason=reason)


def compare(incumbent: Rank, measured: Measurement) -> Transition:
    """The one transition that `measured` is, seen from `incumbent`."""
    match measured:
        case Unrankable():
            return unrankable(f"{measured.obligation}: {measured.reason}")
        case Partial():
            return Transition(Label.OPEN, None, worsened=measured.worsened)
        case Ranked():
            return _compare_ranked(incumbent, measured)
        case _:
            assert_never(measured)


def _compare_ranked(incumbent: Rank, measured: Ranked) -> Transition:
    wanted = {check.obligation for check, _ in (*incumbent.entries, *incumbent.flaky)}
    missing = wanted - (measured.covered[0] if measured.covered else frozenset())
    if missing:
        return unrankable(f"not every obligation ran: {', '.join(sorted(missing))}")
    moved = movements(incumbent, measured)
    improved = tuple(m.check for m in moved if m.improved)
    worsened = tuple(m.check for m in moved if m.worsened)
    match bool(improved), bool(worsened):
        case True, False:
            label = Label.STRICT_PROGRESS
        case False, False:
            label = Label.NO_PROGRESS
        case False, True:
            label = Label.PROTECTED_REGRESSION
        case _:
            label = Label.INCOMPARABLE
    return Transition(
        label,
        rank_after(moved),
        improved,
        worsened,
        tuple(m.check for m in moved if m.revealed),
        sum(not (m.improved or m.worsened or m.revealed) for m in moved),
    )


def needs_another_run(incumbent: Rank, measured: Ranked, contract: Contract) -> frozenset[str]:
    """Obligations to run again before the label can be trusted.

    Those with an improved check, until a second run has confirmed it (unless the obligation
    waives that), and those with a quarantined check that failed each run so far, until `repeats`
    runs, since only failing them all is a worsening. None where another check seals the fate.
    """
    moved = movements(incumbent, measured)
    if any(m.worsened and not m.quarantined for m in moved):
        return frozenset()
    by_name = {obligation.name: obligation for obligation in contract.obligations}
    again: set[str] = set()
    for movement in moved:
        obligation = by_name[movement.check.obligation]
        if movement.quarantined:
            wanted = obligation.repeats if movement.worsened else 1
        else:
            unconfirmed = movement.improved or movement.revealed
            wanted = 2 if obligation.confirm and unconfirmed else 1
        if len(movement.after) < wanted:
            again.add(obligation.name)
    return frozenset(again)
