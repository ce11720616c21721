"""A hand-written `Session` that plays a plan: no model, no commands, the same events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace

from veriloop_tui.core.budget import Spent
from veriloop_tui.core.chat import ModelFacts, Timings, Usage
from veriloop_tui.core.event import (
    ApprovalRequested,
    AttemptEnded,
    AttemptStarted,
    CandidateParsed,
    Event,
    FailingCheck,
    IncumbentMeasured,
    Notice,
    ObligationStatus,
    Outcome,
    ProposalDelta,
    ProposalFinished,
    RunEnded,
    RunStarted,
    VerificationStarted,
)
from veriloop_tui.core.evidence import Evidence
from veriloop_tui.core.obligation import BudgetLimits, CheckId, CheckKind
from veriloop_tui.core.ports import Approval, Approver, Cancel, SessionFacts
from veriloop_tui.core.snapshot import SnapshotId
from veriloop_tui.core.transition import Decision, Label, Transition

MODEL = ModelFacts(
    name="SmolLM2 135M Instruct",
    architecture="llama",
    path="SmolLM2-135M-Instruct-Q4_1.gguf",
    file_size=98_000_000,
    parameters=134_515_008,
    quant="Q4_1",
    bpw=5.83,
    n_ctx=2048,
    file_digest="ab" * 32,
    template_hash="cd" * 32,
)
FACTS = SessionFacts(
    root="/home/ada/projects/little-demo",
    model="smollm2",
    sandbox_tier="best",
    staging_rung="overlay",
    contract_path="veriloop.toml",
    trusted=True,
    obligations=("tests", "types"),
)
FUNCTIONS = ("is_even", "clamp", "vowels", "factorial", "maximum", "total")


def check(name: str) -> CheckId:
    """A test's check."""
    return CheckId("tests", CheckKind.TEST, f"tests/test_numbers.py::test_{name}")


def assertion(name: str) -> str:
    """What pytest might say."""
    return (
        f"    def test_{name}() -> None:\n"
        f">       assert numbers.{name}(7) == 3\n"
        f"E       assert 7 == 3\nE        +  where 7 = numbers.{name}(7)\n\n"
        "tests/test_numbers.py:12: AssertionError"
    )


def measured(failing: tuple[str, ...], text: Callable[[str], str] = assertion) -> IncumbentMeasured:
    """An incumbent where the tests of these functions fail."""
    lines = tuple(FailingCheck(check(name), 1, text(name)) for name in failing)
    return IncumbentMeasured(
        snapshot=SnapshotId("5a" * 32),
        total=len(failing),
        obligations=(
            ObligationStatus("tests", len(failing), 14, lines, (), 0.8),
            ObligationStatus("types", 0, 1, (), (), 1.9),
        ),
        epoch=0,
    )


def a_diff(name: str, body: str) -> str:
    """A small unified diff."""
    return (
        "--- a/numbers.py\n+++ b/numbers.py\n@@ -8,4 +8,4 @@\n"
        f" def {name}(n: int) -> int:\n-    return n\n+    {body}\n \n # end"
    )


@dataclass(frozen=True)
class Planned:
    """One attempt of the plan: what the model says about a function and what comes of it."""

    target: str
    label: Label = Label.STRICT_PROGRESS
    body: str = "return n % 2"
    worsened: tuple[str, ...] = ()
    reason: str = ""
    diff: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        """The model's text."""
        return (
            f"Here is the function repaired:\n\n```python\ndef {self.target}(n: int) -> int:\n"
            f"    {self.body}\n```\n"
        )


PLAN = (
    Planned("is_even", Label.NO_PROGRESS, "return n"),
    Planned("is_even", body="return n % 2 == 0"),
    Planned("clamp", Label.INCOMPARABLE, "return 1", worsened=("sign",)),
    Planned("clamp", Label.INVALID, reason="the answer holds no function named clamp"),
    Planned("clamp", body="return max(low, min(n, high))"),
)


@dataclass
class FakeSession:
    """Plays `plan` against the `failing` checks.

    `gate`, where given, holds every verification until it is set or the run is cancelled. `delay`
    is slept between events, in seconds. `error` is raised instead of the first attempt.
    """

    plan: tuple[Planned, ...] = PLAN
    failing: tuple[str, ...] = FUNCTIONS
    known: SessionFacts = FACTS
    text: Callable[[str], str] = assertion
    gate: threading.Event | None = None
    delay: float = 0.0
    error: Exception | None = None
    history: tuple[Event, ...] = ()
    verifications: int = 0
    tasks: list[str] = field(default_factory=list)
    approvals: list[Approval] = field(default_factory=list)
    changed: Callable[[], None] = lambda: None

    def facts(self) -> SessionFacts:
        return self.known

    def recorded(self) -> tuple[Event, ...]:
        return self.history

    def verify(self, cancel: Cancel) -> Iterator[Event]:
        self.verifications += 1
        yield Notice(text="The tests run in a copy of the workspace.")
        yield measured(self.failing, self.text)

    def watch(self, changed: Callable[[], None]) -> AbstractContextManager[None]:
        @contextmanager
        def watching() -> Iterator[None]:
            self.changed = changed
            yield

        return watching()

    def run(self, task: str, approver: Approver, cancel: Cancel) -> Iterator[Event]:
        self.tasks.append(task)
        pause = threading.Event()
        for event in self._run(task, approver, cancel):
            if self.delay and not cancel.is_set():
                pause.wait(self.delay)
            yield event

    def _run(self, task: str, approver: Approver, cancel: Cancel) -> Iterator[Event]:
        yield RunStarted(
            run="run-1",
            task=task,
            model=MODEL,
            contract_hash="ef" * 32,
            sandbox_tier="best",
            staging_rung="overlay",
            budget=BudgetLimits(attempts=40, tokens=20_000, wall_time=1800.0),
        )
        first, commits, attempts = len(self.failing), 0, 0
        yield measured(self.failing, self.text)
        if self.error is not None:
            raise self.error
        for number, planned in enumerate(self.plan, 1):
            if cancel.is_set():
                break
            attempts = number
            before = self.failing
            for event in self._attempt(number, planned, approver, cancel):
                yield event
                if cancel.is_set():
                    break
            if self.failing != before:
                commits += 1
                yield measured(self.failing, self.text)
        outcome = Outcome.COMPLETE if not self.failing else Outcome.BUDGET_SPENT
        yield RunEnded(
            run="run-1",
            outcome=Outcome.STOPPED if cancel.is_set() else outcome,
            detail="attempts" if outcome is Outcome.BUDGET_SPENT else "",
            attempts=attempts,
            commits=commits,
            rank_before=first,
            rank_after=len(self.failing),
            bundle="b0" * 32,
            spent=self._spent(attempts),
        )

    def _spent(self, attempts: int) -> Spent:
        return Spent(attempts, attempts * 61, attempts * 1.4, attempts * 0.9, 40_000)

    def _attempt(
        self, number: int, planned: Planned, approver: Approver, cancel: Cancel
    ) -> Iterator[Event]:
        yield AttemptStarted(
            attempt=number, form="function", target=f"numbers.py::{planned.target}", seed=number
        )
        for at in range(0, len(planned.answer), 6):
            yield ProposalDelta(attempt=number, text=planned.answer[at : at + 6])
        yield ProposalFinished(
            attempt=number,
            text=planned.answer,
            finish_reason="stop",
            usage=Usage(412, 61, 0 if number == 1 else 380),
            timings=Timings(90.0, 530.0),
        )
        if planned.label is Label.INVALID:
            yield self._ended(number, planned, Decision.RULE_REJECTED, planned.reason)
            return
        diff = planned.diff or a_diff(planned.target, planned.body)
        yield CandidateParsed(attempt=number, paths=("numbers.py",), diff=diff)
        yield VerificationStarted(attempt=number, run_index=0, obligations=("tests", "types"))
        while self.gate is not None and not cancel.is_set() and not self.gate.wait(0.01):
            pass
        if cancel.is_set():
            return
        decision, reason = Decision.RULE_REJECTED, planned.reason
        if planned.label is Label.STRICT_PROGRESS:
            improved = (check(planned.target),)
            yield ApprovalRequested(
                attempt=number, improved=improved, diff=diff, warnings=planned.warnings
            )
            transition = Transition(planned.label, None, improved)
            approval = approver.approve(transition, diff, planned.warnings)
            self.approvals.append(approval)
            if cancel.is_set():
                return
            decision = Decision.COMMITTED if approval.approved else Decision.USER_REJECTED
            reason = approval.reason
        yield self._ended(number, planned, decision, reason)

    def _ended(
        self, number: int, planned: Planned, decision: Decision, reason: str
    ) -> AttemptEnded:
        before = len(self.failing)
        better = planned.label in (Label.STRICT_PROGRESS, Label.INCOMPARABLE)
        improved = (check(planned.target),) if better else ()
        worsened = tuple(check(name) for name in planned.worsened)
        if decision is Decision.COMMITTED:
            self.failing = tuple(name for name in self.failing if name != planned.target)
        after = before - len(improved) + len(worsened)
        ranked = planned.label not in (Label.INVALID, Label.UNRANKABLE)
        evidence = Evidence(
            text=f"The change was {decision.value}.\n{assertion(planned.target)}",
            total_before=before,
            total_after=after if ranked else None,
            profile_before=(before,),
            profile_after=(after,),
            share_improved=0.1,
            share_worsened=0.0,
            share_equal=0.9,
            committed=decision is Decision.COMMITTED,
            zero_rank=False,
        )
        return AttemptEnded(
            attempt=number,
            label=planned.label,
            decision=decision,
            improved=improved,
            worsened=worsened,
            revealed=(),
            rank_before=before,
            rank_after=after if ranked else None,
            reason=reason,
            repeated=False,
            zero_rank=decision is Decision.COMMITTED and after == 0,
            evidence=evidence,
            bundle="b0" * 32 if decision is Decision.COMMITTED else "",
            spent=self._spent(number),
            program_time=0.023,
        )


def untrusted(contract_path: str = "veriloop.toml") -> SessionFacts:
    """A contract that may not run; without a path, no contract."""
    return replace(FACTS, contract_path=contract_path, trusted=False)
