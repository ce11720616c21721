"""The incumbent: the snapshot that candidates are compared with, and how it was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from veriloop_tui.core.event import FailingCheck, ObligationStatus
from veriloop_tui.core.obligation import (
    CheckKind,
    CheckOutcome,
    CommandRecord,
    Contract,
    Measurement,
    Partial,
    Ranked,
    Unrankable,
)
from veriloop_tui.core.ports import Cancel, Snapshots, Verifier
from veriloop_tui.core.rank import Rank, baseline_rank
from veriloop_tui.core.snapshot import Change, SnapshotId
from veriloop_tui.core.transition import Transition, compare, needs_another_run
from veriloop_tui.errors import BaselineNotRankable, ContractError, StaleBase

MOVING_TRIES = 5
SHOWN_FAILING = 500


@dataclass(frozen=True, slots=True)
class Incumbent:
    """A measured snapshot. `outcomes` are those of its latest run, for their excerpts."""

    snapshot: SnapshotId
    rank: Rank
    outcomes: tuple[CheckOutcome, ...]
    records: tuple[CommandRecord, ...]

    @property
    def failing(self) -> tuple[CheckOutcome, ...]:
        """The unsatisfied stable checks; one that was not reported says so."""
        latest = {outcome.check: outcome for outcome in self.outcomes}
        return tuple(
            replace(latest[check], value=self.rank.values[check])
            if check in latest
            else CheckOutcome(check, self.rank.values[check], excerpt="not reported by the run")
            for check in self.rank.failing
        )

    @property
    def test_files(self) -> frozenset[str]:
        """The files that tests came from, whatever their names are.

        Not those of doctests in Python code: there the code itself would be out of reach.
        """
        return frozenset(
            outcome.group
            for outcome in self.outcomes
            if outcome.check.kind is CheckKind.TEST and not _is_doctest(outcome)
        )

    def statuses(self, contract: Contract) -> tuple[ObligationStatus, ...]:
        """One line per obligation, in the contract's order, for people to read."""
        failing = self.failing
        return tuple(
            ObligationStatus(
                name=obligation.name,
                total=sum(v for c, v in self.rank.entries if c.obligation == obligation.name),
                checks=sum(c.obligation == obligation.name for c, _ in self.rank.entries),
                failing=tuple(
                    FailingCheck(outcome.check, outcome.value, outcome.excerpt)
                    for outcome in failing
                    if outcome.check.obligation == obligation.name
                )[:SHOWN_FAILING],
                quarantined=tuple(c for c, _ in self.rank.flaky if c.obligation == obligation.name),
                duration=sum(r.duration for r in self.records if r.obligation == obligation.name),
            )
            for obligation in contract.obligations
        )


def _is_doctest(outcome: CheckOutcome) -> bool:
    """A doctest is named by the dotted name of what it is in, a test function by its own."""
    name = outcome.check.name.removeprefix(outcome.group).partition("[")[0]
    return outcome.group.endswith(".py") and "." in name


def measure_incumbent(
    contract: Contract, snapshots: Snapshots, verifier: Verifier, cancel: Cancel
) -> Incumbent:
    """Snapshot the workspace and rank it, `repeats` times per obligation.

    Raises `BaselineNotRankable`, also where the workspace never stands still, and `ContractError`
    where the contract has no checks.
    """
    for _ in range(MOVING_TRIES):
        snapshot = snapshots.take()
        try:
            measured = _repeat(contract, verifier, cancel)
        except StaleBase:
            continue
        match measured:
            case Unrankable():
                raise BaselineNotRankable(measured.obligation, measured.reason)
            case Partial():
                raise BaselineNotRankable("", "was stopped early")
            case Ranked():
                rank = baseline_rank(measured)
        if not rank.entries and not rank.flaky:
            raise ContractError(
                "veriloop.toml", 0, "obligation", "the contract's commands report no checks"
            )
        return Incumbent(snapshot, rank, measured.runs[0], measured.records)
    raise BaselineNotRankable("", "was not measured: the workspace kept changing meanwhile")


def _repeat(contract: Contract, verifier: Verifier, cancel: Cancel) -> Measurement:
    measured = verifier.measure((), None, cancel)
    for done in range(1, max(o.repeats for o in contract.obligations)):
        only = frozenset(o.name for o in contract.obligations if o.repeats > done)
        measured = _and_then(measured, verifier, (), only, cancel)
    return measured


def _and_then(
    measured: Measurement,
    verifier: Verifier,
    changes: tuple[Change, ...],
    only: frozenset[str],
    cancel: Cancel,
) -> Measurement:
    """`measured` with one more run of `only`; what is not ranked stays as it is."""
    if not isinstance(measured, Ranked):
        return measured
    later = verifier.measure(changes, only, cancel)
    if not isinstance(later, Ranked):
        return replace(later, records=measured.records + later.records)
    return Ranked(
        measured.runs + later.runs,
        measured.covered + later.covered,
        measured.records + later.records,
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate's transition and all that was measured for it."""

    transition: Transition
    measured: Measurement

    @property
    def outcomes(self) -> tuple[CheckOutcome, ...]:
        """The outcomes of the runs, the latest last."""
        if isinstance(self.measured, Ranked):
            return tuple(outcome for run in self.measured.runs for outcome in run)
        return tuple(o for record in self.measured.records for o in record.outcomes)


def judge(
    contract: Contract,
    incumbent: Rank,
    changes: tuple[Change, ...],
    verifier: Verifier,
    cancel: Cancel,
) -> Iterator[frozenset[str] | Judged]:
    """Measure a candidate until its label can be trusted.

    Yields the names of the obligations before each run of them, and the judgement last.
    """
    names = frozenset(o.name for o in contract.obligations)
    yield names
    measured = verifier.measure(changes, None, cancel)
    while isinstance(measured, Ranked):
        only = needs_another_run(incumbent, measured, contract)
        if not only:
            break
        yield only
        measured = _and_then(measured, verifier, changes, only, cancel)
    yield Judged(compare(incumbent, measured), measured)
