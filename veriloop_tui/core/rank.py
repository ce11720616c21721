"""Ranks: one non-negative integer per check, 0 = satisfied.

How a run becomes a rank depends on the incumbent: a check that is absent from the candidate is
read against the value it had. The rules are those of docs/architecture.md, "The rule".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from veriloop_tui.core.obligation import CheckId, CheckKind, CheckOutcome, Ranked


@dataclass(frozen=True)
class Rank:
    """The rank of one snapshot.

    `entries` holds the value of each stable check; `flaky` the distinct values that each
    quarantined check showed on the same bytes. Both are sorted by check.
    """

    entries: tuple[tuple[CheckId, int], ...]
    flaky: tuple[tuple[CheckId, tuple[int, ...]], ...] = ()

    @cached_property
    def values(self) -> Mapping[CheckId, int]:
        """Stable checks and their values."""
        return MappingProxyType(dict(self.entries))

    @cached_property
    def quarantined(self) -> Mapping[CheckId, tuple[int, ...]]:
        """Quarantined checks and the values they showed."""
        return MappingProxyType(dict(self.flaky))

    @property
    def total(self) -> int:
        """Sum over the stable checks; for people and for the bound on commits, never to compare."""
        return sum(value for _, value in self.entries)

    @property
    def is_zero(self) -> bool:
        """Whether every check is satisfied and none is quarantined."""
        return self.total == 0 and not self.flaky

    @property
    def failing(self) -> tuple[CheckId, ...]:
        """Stable checks that are not satisfied."""
        return tuple(check for check, value in self.entries if value)

    def by_obligation(self) -> dict[str, int]:
        """Sum per obligation, in order of name; for people to read."""
        sums: dict[str, int] = {}
        for check, value in self.entries:
            sums[check.obligation] = sums.get(check.obligation, 0) + value
        return sums


def make_rank(
    values: Mapping[CheckId, int], flaky: Mapping[CheckId, tuple[int, ...]] | None = None
) -> Rank:
    """A `Rank` with its entries in order. Raises `ValueError` for a negative value."""
    if any(value < 0 for value in values.values()):
        raise ValueError("a rank has no negative values")
    return Rank(tuple(sorted(values.items())), tuple(sorted((flaky or {}).items())))


def observed(measured: Ranked) -> dict[CheckId, list[CheckOutcome | None]]:
    """Each check's outcome per run that covered its obligation; `None` where it was absent.

    A check reported twice by one run counts with its worst outcome.
    """
    runs: list[dict[CheckId, CheckOutcome]] = []
    for outcomes in measured.runs:
        run: dict[CheckId, CheckOutcome] = {}
        for outcome in outcomes:
            run[outcome.check] = _worse(run.get(outcome.check), outcome)
        runs.append(run)
    checks = {check for run in runs for check in run}
    return {
        check: [
            run.get(check)
            for run, covered in zip(runs, measured.covered, strict=True)
            if check.obligation in covered
        ]
        for check in sorted(checks)
    }


def _worse(first: CheckOutcome | None, second: CheckOutcome) -> CheckOutcome:
    if first is None or (first.skipped and not second.skipped):
        return second
    if second.skipped:
        return first
    return first if first.value >= second.value else second


def read_value(check: CheckId, outcome: CheckOutcome | None, before: int) -> int:
    """The value of one outcome, read against the value `before` that the check had.

    Absent or skipped is max(1, before) for enumerated checks and 0 for counted ones, which are
    reported only where there is something to count.
    """
    if outcome is not None and not outcome.skipped:
        return outcome.value
    match check.kind:
        case CheckKind.COUNTED:
            return 0
        case CheckKind.TEST | CheckKind.COLLECT | CheckKind.EXIT:
            return max(1, before)


def baseline_rank(measured: Ranked) -> Rank:
    """The rank of an incumbent from repeated runs on the same bytes.

    A check skipped in every run is outside the rank; one that varies is quarantined.
    """
    values: dict[CheckId, int] = {}
    flaky: dict[CheckId, tuple[int, ...]] = {}
    for check, outcomes in observed(measured).items():
        if _is_skipped_throughout(outcomes):
            continue
        worst = max(o.value for o in outcomes if o is not None and not o.skipped)
        seen = {read_value(check, outcome, worst) for outcome in outcomes}
        if len(seen) == 1:
            values[check] = seen.pop()
        else:
            flaky[check] = tuple(sorted(seen))
    return make_rank(values, flaky)


def _is_skipped_throughout(outcomes: list[CheckOutcome | None]) -> bool:
    return all(outcome is None or outcome.skipped for outcome in outcomes)


@dataclass(frozen=True, slots=True)
class Movement:
    """How one check moved from the incumbent to the candidate.

    `before` is `None` for a check that the incumbent did not have, or has in quarantine. `after`
    holds the values of the candidate's runs, read against `before`.
    """

    check: CheckId
    before: int | None
    after: tuple[int, ...]
    quarantined: tuple[int, ...] = ()
    revealed: bool = False

    @property
    def varies(self) -> bool:
        """Whether the candidate's runs disagree."""
        return len(set(self.after)) > 1

    @property
    def worsened(self) -> bool:
        """Whether this movement forbids a commit."""
        if self.quarantined:
            passed_before = min(self.quarantined) == 0
            return min(self.after) > (0 if passed_before else max(self.quarantined))
        if self.revealed:
            return False
        return self.varies or max(self.after) > (self.before or 0)

    @property
    def improved(self) -> bool:
        """Whether this movement counts as progress."""
        return self.before is not None and not self.varies and max(self.after) < self.before


def movements(incumbent: Rank, measured: Ranked) -> tuple[Movement, ...]:
    """Every check of the incumbent and of the candidate, and how it moved."""
    seen = observed(measured)
    moved = tuple(_movements(incumbent, measured, seen))
    return tuple(
        _among_tests(movement, moved, seen) if movement.check.kind is CheckKind.EXIT else movement
        for movement in moved
    )


def _movements(
    incumbent: Rank, measured: Ranked, seen: Mapping[CheckId, list[CheckOutcome | None]]
) -> Iterator[Movement]:
    def after(check: CheckId, before: int) -> tuple[int, ...]:
        covering = sum(check.obligation in covered for covered in measured.covered)
        outcomes = seen.get(check, [None] * covering)
        return tuple(read_value(check, outcome, before) for outcome in outcomes)

    for check, value in incumbent.entries:
        yield Movement(check, value, after(check, value))
    for check, shown in incumbent.flaky:
        yield Movement(check, None, after(check, max(shown)), quarantined=shown)
    for check, outcomes in seen.items():
        known = check in incumbent.values or check in incumbent.quarantined
        if known or _is_skipped_throughout(outcomes):
            continue
        yield Movement(
            check, None, after(check, 0), revealed=_is_revealed(check, outcomes, incumbent, seen)
        )


def _among_tests(
    ending: Movement,
    moved: tuple[Movement, ...],
    seen: Mapping[CheckId, list[CheckOutcome | None]],
) -> Movement:
    """An exit check, read together with the tests of its obligation, which it sums up.

    It does not improve while one of them is violated, so that making a failing test vanish earns
    nothing. A run in which none but quarantined ones failed tells nothing of it.
    """
    if ending.before is None:
        return ending
    tests = [
        movement
        for movement in moved
        if movement.check.obligation == ending.check.obligation
        and movement.check.kind in (CheckKind.TEST, CheckKind.COLLECT)
    ]
    told: list[int | None] = []
    for run, value in enumerate(ending.after):
        violated = any(test.after[run] for test in tests if not test.quarantined)
        flaked = any(_failed(seen, test.check, run) for test in tests if test.quarantined)
        if violated and value == 0:
            told.append(ending.before)
        else:
            told.append(None if flaked and not violated and value else value)
    usual = max((value for value in told if value is not None), default=ending.before)
    return replace(ending, after=tuple(usual if value is None else value for value in told))


def _failed(seen: Mapping[CheckId, list[CheckOutcome | None]], check: CheckId, run: int) -> bool:
    outcome = seen[check][run] if check in seen else None
    return outcome is not None and not outcome.skipped and outcome.value > 0


def _is_revealed(
    check: CheckId,
    outcomes: list[CheckOutcome | None],
    incumbent: Rank,
    seen: Mapping[CheckId, list[CheckOutcome | None]],
) -> bool:
    """Whether the check was hidden behind a collection error that the candidate repairs."""
    groups = {
        name for outcome in outcomes if outcome is not None for name in _with_folders(outcome.group)
    }
    for group in groups - {""}:
        collect = CheckId(check.obligation, CheckKind.COLLECT, group)
        collected = seen.get(collect, [])
        if (
            check.kind is CheckKind.TEST
            and incumbent.values.get(collect, 0) > 0
            and collected
            and all(o is not None and not o.skipped and o.value == 0 for o in collected)
        ):
            return True
    return False


def _with_folders(group: str) -> list[str]:
    """The group's file and the folders above it: a runner may fail to collect a whole folder."""
    parts = group.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def rank_after(moved: tuple[Movement, ...]) -> Rank:
    """The candidate's rank: what it would hold as the next incumbent."""
    values: dict[CheckId, int] = {}
    flaky: dict[CheckId, tuple[int, ...]] = {}
    for movement in moved:
        if movement.quarantined:
            flaky[movement.check] = movement.quarantined
        elif movement.revealed and movement.varies:
            flaky[movement.check] = tuple(sorted(set(movement.after)))
        else:
            values[movement.check] = max(movement.after)
    return make_rank(values, flaky)
