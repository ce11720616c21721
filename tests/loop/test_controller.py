"""The controller, whole, on fakes of the ports."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.loop.fakes import (
    CONTRACT,
    FakeApprover,
    FakeClock,
    FakeLedger,
    FakeProposer,
    FakeVerifier,
    FakeWorkspace,
    Files,
    passing,
    unrankable,
)
from veriloop_tui.core.event import (
    AttemptEnded,
    AttemptStarted,
    EpochStarted,
    Event,
    Notice,
    Outcome,
    ProposalDelta,
    RunEnded,
)
from veriloop_tui.core.obligation import (
    BudgetLimits,
    CheckId,
    CheckKind,
    CheckOutcome,
    Measurement,
    Ranked,
)
from veriloop_tui.core.ports import Approval, InvalidAnswer
from veriloop_tui.core.snapshot import Delete, Write
from veriloop_tui.core.transition import Decision, Label
from veriloop_tui.errors import ContractError, EngineCrashed, SandboxUnavailable
from veriloop_tui.loop.controller import Controller
from veriloop_tui.loop.plan import Parts, Plan

BOTH_BAD = b"a = bad\nb = bad\n"
A_GOOD = (Write("app.py", b"a = ok\nb = bad\n"),)
BOTH_GOOD = (Write("app.py", b"a = ok\nb = ok\n"),)
START = b"a = bad\nb = bad\nc = ok\n"
TRADE = (Write("app.py", b"a = ok\nb = bad\nc = bad\n"),)


YES = Approval(True)


def in_tests(path: str) -> bool:
    return path.startswith("tests/")


class Bench:
    """A controller with fakes all around, ready to run."""

    def __init__(
        self,
        proposer: FakeProposer,
        files: Files | None = None,
        measured: Callable[[Files], Measurement] = passing,
        limits: BudgetLimits | None = None,
        approval: Approval = YES,
    ) -> None:
        self.workspace = FakeWorkspace(files or {"app.py": BOTH_BAD})
        self.verifier = FakeVerifier(self.workspace, measured)
        self.proposer, self.ledger = proposer, FakeLedger()
        self.approver, self.clock = FakeApprover(approval), FakeClock()
        self.cancel = threading.Event()
        budget = CONTRACT.budget if limits is None else limits
        plan = Plan("run", "task", CONTRACT, budget, in_tests, 1, "0", "here")
        parts = Parts(
            None,
            self.workspace,
            self.verifier,
            self.workspace,
            proposer,
            self.ledger,
            self.approver,
            self.clock,
            lambda: 0,
        )
        self.controller = Controller(plan, parts, self.cancel)

    def run(self) -> tuple[list[Event], RunEnded]:
        events = list(self.controller.events())
        assert isinstance(events[-1], RunEnded)
        return events, events[-1]


def collect(events: Iterator[Event], into: list[Event]) -> None:
    for event in events:
        into.append(event)


def attempts(events: list[Event]) -> list[AttemptEnded]:
    return [event for event in events if isinstance(event, AttemptEnded)]


def test_strict_progress_commits_until_rank_zero() -> None:
    bench = Bench(FakeProposer(A_GOOD, BOTH_GOOD))
    events, end = bench.run()
    assert [a.decision for a in attempts(events)] == [Decision.COMMITTED] * 2
    assert [a.zero_rank for a in attempts(events)] == [False, True]
    assert (end.outcome, end.rank_before, end.rank_after, end.commits) == (
        Outcome.COMPLETE,
        2,
        0,
        2,
    )
    assert bench.workspace.live == {"app.py": b"a = ok\nb = ok\n"}
    assert end.bundle == bench.ledger.head()


def test_each_commit_is_a_bundle_whose_parent_is_the_one_before() -> None:
    bench = Bench(FakeProposer(A_GOOD, BOTH_GOOD))
    bench.run()
    ids = [bundle.bundle_id for bundle in bench.ledger.bundles()]
    assert [bundle.binding.parent for bundle in bench.ledger.bundles()] == ["", *ids[:-1]]


def test_a_trade_is_incomparable_and_leaves_the_workspace_alone() -> None:
    bench = Bench(FakeProposer(TRADE), {"app.py": START}, limits=BudgetLimits(attempts=1))
    events, end = bench.run()
    assert attempts(events)[0].label is Label.INCOMPARABLE
    assert attempts(events)[0].decision is Decision.RULE_REJECTED
    assert bench.workspace.live == {"app.py": START}
    assert (end.outcome, end.detail) == (Outcome.BUDGET_SPENT, "attempts")


def test_a_rejected_candidate_is_not_run_again() -> None:
    bench = Bench(FakeProposer(TRADE), {"app.py": START}, limits=BudgetLimits(attempts=3))
    events, _ = bench.run()
    assert bench.verifier.runs == 2 + 1
    assert [a.repeated for a in attempts(events)] == [False, True, True]
    assert {a.label for a in attempts(events)} == {Label.INCOMPARABLE}


def test_an_improvement_is_run_twice_before_it_commits() -> None:
    bench = Bench(FakeProposer(BOTH_GOOD))
    bench.run()
    assert bench.verifier.runs == 2 + 2


@pytest.mark.parametrize(
    "answer",
    [
        InvalidAnswer("no edit was found"),
        (Write("tests/test_app.py", b"assert True"),),
        (Write("../escape", b""),),
        (Write("app.py", BOTH_BAD),),
    ],
    ids=["unparseable", "protected", "escape", "unchanged"],
)
def test_what_is_no_candidate_is_invalid_and_never_run(
    answer: InvalidAnswer | tuple[Write, ...],
) -> None:
    bench = Bench(FakeProposer(answer), limits=BudgetLimits(attempts=1))
    events, _ = bench.run()
    assert attempts(events)[0].label is Label.INVALID
    assert attempts(events)[0].reason
    assert bench.verifier.runs == 2


def in_checks(files: Files) -> Measurement:
    """As `passing`, reported as tests of `checks.py`, and one doctest of `app.py`."""
    told = passing(files)
    assert isinstance(told, Ranked)
    run = tuple(replace(outcome, group="checks.py") for outcome in told.runs[0])
    doctest = CheckOutcome(CheckId("t", CheckKind.TEST, "app.py::app.add"), 0, group="app.py")
    return replace(told, runs=((*run, doctest),))


def test_a_file_that_tests_came_from_is_protected_whatever_its_name() -> None:
    edit = (Write("app.py", b"a = ok\nb = ok\n"), Write("checks.py", b""))
    files = {"app.py": BOTH_BAD, "checks.py": b"tests"}
    bench = Bench(FakeProposer(edit), files, in_checks, BudgetLimits(attempts=1))
    events, _ = bench.run()
    assert attempts(events)[0].label is Label.INVALID
    assert attempts(events)[0].reason == "checks.py: tests of the contract are in this file"
    assert bench.workspace.live == files


def test_code_that_holds_doctests_can_be_improved() -> None:
    bench = Bench(FakeProposer(BOTH_GOOD), measured=in_checks)
    _, end = bench.run()
    assert end.outcome is Outcome.COMPLETE


def test_a_rejection_is_evidence_for_the_next_attempt_and_a_commit_clears_it() -> None:
    bench = Bench(FakeProposer(InvalidAnswer("no edit was found"), A_GOOD, BOTH_GOOD))
    bench.run()
    histories = [context.history for context in bench.proposer.contexts]
    assert [len(history) for history in histories] == [0, 1, 0]
    assert [context.answers for context in bench.proposer.contexts] == [(), ("an answer",), ()]
    assert "no edit was found" in histories[1][0].text


def test_a_user_rejection_is_kept_with_its_reason_and_not_asked_again() -> None:
    bench = Bench(
        FakeProposer(A_GOOD), limits=BudgetLimits(attempts=2), approval=Approval(False, "ugly")
    )
    events, end = bench.run()
    assert [a.decision for a in attempts(events)] == [Decision.USER_REJECTED] * 2
    assert [a.label for a in attempts(events)] == [Label.STRICT_PROGRESS] * 2
    assert attempts(events)[0].reason == "ugly"
    assert len(bench.approver.asked) == 1
    assert end.commits == 0
    assert bench.workspace.live == {"app.py": BOTH_BAD}


def test_a_contract_that_changes_during_the_run_ends_it() -> None:
    bench = Bench(FakeProposer(A_GOOD, BOTH_GOOD))
    bench.approver.meanwhile = lambda: bench.workspace.live.update({"veriloop.toml": b"new"})
    events: list[Event] = []
    with pytest.raises(ContractError, match="start another"):
        collect(bench.controller.events(), events)
    assert isinstance(events[-1], RunEnded)
    assert events[-1].outcome is Outcome.FAILED
    assert events[-1].commits <= 1


def test_a_satisfied_workspace_claims_no_success() -> None:
    bench = Bench(FakeProposer(A_GOOD), {"app.py": b"a = ok\n"})
    _, end = bench.run()
    assert (end.outcome, end.attempts) == (Outcome.NOTHING_TO_IMPROVE, 0)


def test_an_unrankable_baseline_ends_the_run_with_its_reason() -> None:
    bench = Bench(FakeProposer(A_GOOD), measured=unrankable)
    _, end = bench.run()
    assert end.outcome is Outcome.NOT_RANKABLE
    assert "ran out of time" in end.detail


def test_an_unrankable_candidate_may_be_tried_again() -> None:
    def measured(files: Files) -> Measurement:
        return passing(files) if files["app.py"] == BOTH_BAD else unrankable(files)

    bench = Bench(FakeProposer(A_GOOD), measured=measured, limits=BudgetLimits(attempts=2))
    events, _ = bench.run()
    assert [a.label for a in attempts(events)] == [Label.UNRANKABLE] * 2
    assert [a.repeated for a in attempts(events)] == [False, False]


def test_an_engine_that_dies_ends_the_run_cleanly() -> None:
    bench = Bench(FakeProposer(EngineCrashed("killed")))
    _, end = bench.run()
    assert end.outcome is Outcome.ENGINE_FAILED
    assert bench.workspace.live == {"app.py": BOTH_BAD}


def test_another_error_is_told_in_the_last_event_and_raised() -> None:
    bench = Bench(FakeProposer(SandboxUnavailable("best", "gone", "Install it.")))
    seen: list[Event] = []
    with pytest.raises(SandboxUnavailable):
        collect(bench.controller.events(), seen)
    end = seen[-1]
    assert isinstance(end, RunEnded)
    assert end.outcome is Outcome.FAILED


def test_a_user_edit_between_attempts_starts_an_epoch_with_a_new_measurement() -> None:
    bench = Bench(FakeProposer(InvalidAnswer("nothing"), BOTH_GOOD))
    events: list[Event] = []
    for event in bench.controller.events():
        events.append(event)
        if isinstance(event, AttemptEnded) and event.attempt == 1:
            bench.workspace.live["notes"] = b"mine"
    epochs = [event for event in events if isinstance(event, EpochStarted)]
    assert [(e.epoch, e.paths) for e in epochs] == [(2, ("notes",))]
    assert bench.workspace.live == {"app.py": b"a = ok\nb = ok\n", "notes": b"mine"}


def test_a_candidate_measured_on_a_moved_workspace_is_stale_and_verified_afresh() -> None:
    bench = Bench(FakeProposer(BOTH_GOOD))

    def edit_once() -> None:
        bench.workspace.live["notes"] = b"mine"

    bench.verifier.during = edit_once
    events, end = bench.run()
    assert [a.decision for a in attempts(events)] == [Decision.STALE, Decision.COMMITTED]
    forms = [event.form for event in events if isinstance(event, AttemptStarted)]
    assert forms == ["fake", "re-applied"]
    assert end.outcome is Outcome.COMPLETE
    assert bench.workspace.live["notes"] == b"mine"


@pytest.mark.parametrize("moment", ["approval", "promotion"])
def test_the_users_edit_of_a_touched_file_wins(moment: str) -> None:
    bench = Bench(FakeProposer(BOTH_GOOD), limits=BudgetLimits(attempts=1))
    mine = b"a = bad\nb = bad\nmine = bad\n"

    def edit() -> None:
        bench.workspace.live["app.py"] = mine

    if moment == "approval":
        bench.approver.meanwhile = edit
    else:
        bench.workspace.before_promotion = edit
    events, end = bench.run()
    assert attempts(events)[0].decision is Decision.STALE
    assert bench.workspace.live == {"app.py": mine}
    assert end.commits == 0


def test_an_edit_beside_the_candidate_while_the_user_decides_makes_it_stale() -> None:
    bench = Bench(FakeProposer(BOTH_GOOD))

    def edit_once() -> None:
        bench.workspace.live["notes"] = b"mine"

    bench.approver.meanwhile = edit_once
    events, _ = bench.run()
    assert [a.decision for a in attempts(events)] == [Decision.STALE, Decision.COMMITTED]


def test_a_baseline_measured_while_the_user_edits_is_measured_again() -> None:
    bench = Bench(FakeProposer(BOTH_GOOD))

    def measured(files: Files) -> Measurement:
        bench.workspace.live.setdefault("notes", b"mine")
        return passing(files)

    bench.verifier.measured = measured
    bench.run()
    baseline = bench.ledger.bundles()[0]
    assert "notes" in bench.workspace.kept[baseline.artifact]


def test_an_edit_that_cannot_be_ranked_pauses_the_run_until_the_next_edit() -> None:
    def measured(files: Files) -> Measurement:
        return unrankable(files) if b"half" in files["app.py"] else passing(files)

    bench = Bench(FakeProposer(InvalidAnswer("nothing"), BOTH_GOOD), measured=measured)

    def repair() -> None:
        bench.workspace.live["app.py"] = b"a = bad\nb = ok\n"

    bench.clock.slept = repair
    events: list[Event] = []
    for event in bench.controller.events():
        events.append(event)
        if isinstance(event, AttemptEnded) and event.attempt == 1:
            bench.workspace.live["app.py"] = b"half"
    assert any(isinstance(e, Notice) and e.text.startswith("Paused") for e in events)
    end = events[-1]
    assert isinstance(end, RunEnded)
    assert end.outcome is Outcome.COMPLETE


def test_stop_ends_the_run_before_anything_is_promoted() -> None:
    bench = Bench(FakeProposer(BOTH_GOOD))
    bench.approver.meanwhile = bench.cancel.set
    _, end = bench.run()
    assert end.outcome is Outcome.STOPPED
    assert bench.workspace.live == {"app.py": BOTH_BAD}


@pytest.mark.parametrize(
    ("limits", "detail"),
    [
        (BudgetLimits(attempts=None, tokens=40), "tokens"),
        (BudgetLimits(attempts=None, wall_time=20.0), "wall_time"),
        (BudgetLimits(attempts=None, verifier_time=1.5), "verifier_time"),
    ],
)
def test_each_budget_ends_the_run_by_its_name(limits: BudgetLimits, detail: str) -> None:
    bench = Bench(FakeProposer(InvalidAnswer("nothing"), TRADE), {"app.py": START}, limits=limits)
    _, end = bench.run()
    assert (end.outcome, end.detail) == (Outcome.BUDGET_SPENT, detail)


def test_only_quarantined_checks_left_is_no_completion() -> None:
    shaky = 0

    def measured(files: Files) -> Measurement:
        nonlocal shaky
        shaky += 1
        return passing({"app.py": files["app.py"] + (b"f = ok\n" if shaky % 2 else b"f = bad\n")})

    bench = Bench(FakeProposer(BOTH_GOOD), measured=measured)
    events, end = bench.run()
    assert [a.zero_rank for a in attempts(events)] == [False]
    assert end.outcome is Outcome.STALLED


def test_a_deleted_file_takes_its_checks_with_it_and_is_rejected() -> None:
    bench = Bench(FakeProposer((Delete("app.py"),)), limits=BudgetLimits(attempts=1))
    events, _ = bench.run()
    assert attempts(events)[0].label is Label.NO_PROGRESS
    assert "app.py" in bench.workspace.live


def test_suspicious_lines_are_shown_at_approval() -> None:
    cheat = (Write("app.py", b"a = ok\nb = ok\nimport os; os._exit(0)\n"),)
    bench = Bench(
        FakeProposer(cheat),
        measured=lambda files: passing({"app.py": b"\n".join(files["app.py"].split(b"\n")[:2])}),
    )
    bench.run()
    assert any("os._exit" in warning for warning in bench.approver.asked[0])


def test_every_event_but_the_pieces_of_answers_is_recorded_in_order() -> None:
    bench = Bench(FakeProposer(A_GOOD, TRADE, BOTH_GOOD))
    events, _ = bench.run()
    assert bench.ledger.events == [e for e in events if not isinstance(e, ProposalDelta)]


def test_the_same_seed_gives_the_same_attempt_seeds_and_another_run_others() -> None:
    def seeds(bench: Bench) -> list[int]:
        events, _ = bench.run()
        return [event.seed for event in events if isinstance(event, AttemptStarted)]

    first, second = (seeds(Bench(FakeProposer(A_GOOD, BOTH_GOOD))) for _ in range(2))
    assert first == second
    assert len(set(first)) == len(first)
