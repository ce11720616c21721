"""The evidence compiler: what an attempt showed, as bounded, deterministic text and numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from veriloop_tui.core.excerpt import excerpt, one_line
from veriloop_tui.core.obligation import CheckId, CheckOutcome
from veriloop_tui.core.rank import Rank
from veriloop_tui.core.transition import Decision, Label, Transition

PROFILE_BINS = 16


@dataclass(frozen=True, slots=True)
class EvidenceLimits:
    """Bounds in characters and items."""

    text: int = 4000
    excerpt: int = 900
    excerpts: int = 3
    names: int = 8
    name: int = 120


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the next attempt may learn from this one.

    `profile_before` and `profile_after` are ranks folded to `PROFILE_BINS` sums, so that ranks of
    any width have one length; shares are of all checks compared, each in 0..1.
    """

    text: str
    total_before: int
    total_after: int | None
    profile_before: tuple[int, ...]
    profile_after: tuple[int, ...] | None
    share_improved: float
    share_worsened: float
    share_equal: float
    committed: bool
    zero_rank: bool


def fold(rank: Rank, bins: int = PROFILE_BINS) -> tuple[int, ...]:
    """The rank as `bins` sums over runs of neighbouring checks, in order of check."""
    count = len(rank.entries)
    sums = [0] * bins
    for index, (_, value) in enumerate(rank.entries):
        sums[index * bins // max(count, bins)] += value
    return tuple(sums)


def compile_evidence(
    incumbent: Rank,
    transition: Transition,
    decision: Decision,
    outcomes: Iterable[CheckOutcome],
    limits: EvidenceLimits | None = None,
) -> Evidence:
    """Evidence of one attempt. Same inputs, same bytes; hostile excerpts cannot break the bounds.

    `outcomes` are the candidate's, for their excerpts; worsened checks are quoted first.
    """
    bounds = limits or EvidenceLimits()
    text = excerpt(_describe(transition, decision, outcomes, bounds), bounds.text)
    compared = len(transition.improved) + len(transition.worsened) + transition.equal
    return Evidence(
        text=text,
        total_before=incumbent.total,
        total_after=None if transition.rank is None else transition.rank.total,
        profile_before=fold(incumbent),
        profile_after=None if transition.rank is None else fold(transition.rank),
        share_improved=len(transition.improved) / compared if compared else 0.0,
        share_worsened=len(transition.worsened) / compared if compared else 0.0,
        share_equal=transition.equal / compared if compared else 0.0,
        committed=decision is Decision.COMMITTED,
        zero_rank=transition.zero_rank,
    )


def _describe(
    transition: Transition,
    decision: Decision,
    outcomes: Iterable[CheckOutcome],
    bounds: EvidenceLimits,
) -> str:
    lines = [f"The change was {decision.value}: {_why(transition)}."]
    if transition.reason and transition.label in (Label.INVALID, Label.UNRANKABLE):
        lines.append(excerpt(transition.reason, bounds.excerpt))
    for title, checks in (("Better", transition.improved), ("Worse", transition.worsened)):
        if checks:
            lines.append(f"{title}: {_names(checks, bounds)}")
    lines += [
        f"{one_line(str(outcome.check), bounds.name)}\n{excerpt(outcome.excerpt, bounds.excerpt)}"
        for outcome in _most_useful(transition, outcomes)[: bounds.excerpts]
    ]
    return "\n".join(lines)


def _why(transition: Transition) -> str:
    match transition.label:
        case Label.STRICT_PROGRESS:
            return "some checks improved and none got worse"
        case Label.NO_PROGRESS:
            return "no check improved"
        case Label.PROTECTED_REGRESSION:
            return "it made checks worse and improved none"
        case Label.INCOMPARABLE:
            return "it improved some checks but made others worse"
        case Label.INVALID:
            return "it was not a change that could be tried"
        case Label.UNRANKABLE:
            return "its effect could not be measured"
        case Label.OPEN:
            return "it made a check worse, and its run was stopped there"


def _names(checks: tuple[CheckId, ...], bounds: EvidenceLimits) -> str:
    shown = ", ".join(one_line(str(check), bounds.name) for check in checks[: bounds.names])
    rest = len(checks) - bounds.names
    return f"{shown} and {rest} more" if rest > 0 else shown


def _most_useful(transition: Transition, outcomes: Iterable[CheckOutcome]) -> list[CheckOutcome]:
    worsened = frozenset(transition.worsened)
    telling = {o.check: o for o in outcomes if o.excerpt and o.value and not o.skipped}
    return sorted(telling.values(), key=lambda o: (o.check not in worsened, o.check))
