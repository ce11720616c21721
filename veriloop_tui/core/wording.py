"""Sentences for people: what happened to a candidate and why, in the product's words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import assert_never

from veriloop_tui.core.event import AttemptEnded, Outcome, RunEnded
from veriloop_tui.core.excerpt import one_line
from veriloop_tui.core.obligation import CheckId
from veriloop_tui.core.transition import Decision, Label

_SHOWN = 50
_IN_SENTENCE = 3
_NAME = 120
_REASON = 400


@dataclass(frozen=True, slots=True)
class Names:
    """A bounded list of sanitised names; `count` is how many there are in all."""

    shown: tuple[str, ...] = ()
    count: int = 0

    def __str__(self) -> str:
        rest = self.count - min(len(self.shown), _IN_SENTENCE)
        text = ", ".join(self.shown[:_IN_SENTENCE])
        return f"{text} and {rest:,} more" if rest > 0 else text


def names(items: Iterable[str]) -> Names:
    """The first items, each on one line, and the count of all."""
    rest = iter(items)
    shown = tuple(one_line(item, _NAME) for item in islice(rest, _SHOWN))
    return Names(shown, len(shown) + sum(1 for _ in rest))


def short(check: CheckId) -> str:
    """A check's name without the path before it; the evidence has it whole."""
    return check.name.rpartition("::")[2] or check.name


def checks(found: Names) -> str:
    """`2 checks (a, b)`."""
    return f"{found.count:,} check{'s' if found.count != 1 else ''} ({found})"


def verdict(event: AttemptEnded) -> str:
    """One sentence: what improved, what got worse, why it did or did not commit."""
    match event.decision:
        case Decision.COMMITTED:
            return _committed(event)
        case Decision.USER_REJECTED:
            why = one_line(event.reason, _REASON)
            return f"Not committed: you rejected it{f': {why}' if why else ''}."
        case Decision.SUPERSEDED:
            return "Not committed: a better candidate of the same batch won."
        case Decision.STALE:
            return "Not committed: the files it was made for changed meanwhile."
        case Decision.RULE_REJECTED:
            again = " (The same change was rejected before; it was not run again.)"
            return f"Not committed: {_why_not(event)}.{again if event.repeated else ''}"
        case _:
            assert_never(event.decision)


def _committed(event: AttemptEnded) -> str:
    parts = [f"Committed: {checks(names(map(short, event.improved)))} improved, none got worse."]
    if event.revealed:
        count = len(event.revealed)
        parts.append(f"{count:,} check{'s' if count != 1 else ''} came out of a collection error.")
    if event.zero_rank:
        parts.append("Every check of this contract is now satisfied.")
    return " ".join(parts)


def _why_not(event: AttemptEnded) -> str:
    better, worse = names(map(short, event.improved)), names(map(short, event.worsened))
    reason = one_line(event.reason, _REASON).rstrip(".")
    match event.label:
        case Label.STRICT_PROGRESS:
            return reason or "it could not be written to the workspace"
        case Label.NO_PROGRESS:
            return "no check improved"
        case Label.PROTECTED_REGRESSION:
            return f"{checks(worse)} got worse, none improved"
        case Label.INCOMPARABLE:
            return f"{checks(better)} improved, but {checks(worse)} got worse"
        case Label.INVALID:
            return f"the answer is no valid change: {reason}" if reason else "no valid change"
        case Label.UNRANKABLE:
            return f"its effect could not be measured: {reason}"
        case Label.OPEN:
            return f"{checks(worse)} got worse, and its run was stopped there"
        case _:
            assert_never(event.label)


def outcome(event: RunEnded) -> str:
    """One sentence: how a run ended."""
    detail = one_line(event.detail, _REASON).rstrip(".")
    done = (
        f"{event.commits:,} commit{'s' if event.commits != 1 else ''} in "
        f"{event.attempts:,} attempt{'s' if event.attempts != 1 else ''}"
    )
    if event.rank_before is not None and event.rank_after is not None:
        done += f", rank {event.rank_before:,} → {event.rank_after:,}"
    return f"{_ended(event.outcome, detail)} {done[0].upper()}{done[1:]}."


def _ended(how: Outcome, detail: str) -> str:
    match how:
        case Outcome.COMPLETE:
            return "Complete: every check of this contract is satisfied."
        case Outcome.NOTHING_TO_IMPROVE:
            return "Nothing to improve: every check was satisfied at the start."
        case Outcome.BUDGET_SPENT:
            return f"The budget is spent{f': {detail}' if detail else ''}."
        case Outcome.STOPPED:
            return "Stopped."
        case Outcome.ENGINE_FAILED:
            return f"The engine failed{f': {detail}' if detail else ''}."
        case Outcome.STALLED:
            return f"Stalled{f': {detail}' if detail else ''}."
        case Outcome.FAILED:
            return f"The run failed{f': {detail}' if detail else ''}."
        case Outcome.NOT_RANKABLE:
            return f"The workspace could not be ranked{f': {detail}' if detail else ''}."
        case _:
            assert_never(how)
