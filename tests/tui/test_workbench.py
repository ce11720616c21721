"""The work on one workspace, without a screen and without threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.tui.fake_session import FakeSession, check
from tests.tui.stubs import never
from veriloop_tui.core.event import ApprovalRequested, Event
from veriloop_tui.core.ports import Approval, Approver, Cancel
from veriloop_tui.core.transition import Label, Transition
from veriloop_tui.errors import Cancelled, UntrustedContract
from veriloop_tui.tui.job import STOPPED, FilesChanged, Measure, Open, Run, UserApprover
from veriloop_tui.tui.view import Phase
from veriloop_tui.tui.workbench import QUIET, Workbench, sentence

ASKED = ApprovalRequested(attempt=1, improved=(check("f"),), diff="+x", warnings=())
PROGRESS = Transition(Label.STRICT_PROGRESS, None)


class Asks(FakeSession):
    """A run that has asked and goes no further."""

    def run(self, task: str, approver: Approver, cancel: Cancel) -> Iterator[Event]:
        yield ASKED


@dataclass
class Bench:
    """A workbench whose jobs are kept, to be done when the test says so."""

    session: FakeSession = field(default_factory=FakeSession)
    auto: bool = False
    now: float = 0.0
    bodies: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bench = Workbench(self.session, self.auto, lambda: self.now, self.bodies.append)

    def do(self) -> None:
        """Do what was begun, to its end."""
        while self.bodies:
            self.bodies.pop(0)()
            self.bench.ended(None)
            self.bench.advance()


def test_opening_shows_facts_history_and_a_measurement() -> None:
    at = Bench(FakeSession(history=(*FakeSession(plan=()).run("old", UserApprover(True), never),)))
    at.bench.want(Open(measure=True))
    at.bench.advance()
    assert at.bench.view.phase is Phase.MEASURING
    at.do()
    assert at.bench.facts == at.session.known
    assert at.bench.view.incumbent is not None
    assert len(at.bench.view.timeline) == 1
    assert at.bench.may_run


def test_one_job_runs_at_a_time() -> None:
    at = Bench()
    at.bench.want(Open(measure=True))
    at.bench.advance()
    at.bench.want(Run("x"))
    at.bench.advance()
    assert len(at.bodies) == 1
    assert at.bench.stopping
    assert at.bench.running


def test_a_run_that_has_told_nothing_yet_is_seen_to_start() -> None:
    at = Bench()
    at.bench.want(Run("x"))
    at.bench.advance()
    assert at.bench.view.phase is Phase.STARTING


def test_with_auto_the_question_is_never_shown_as_open() -> None:
    at = Bench(Asks(), auto=True)
    at.bench.want(Run("x"))
    at.bench.advance()
    at.bodies.pop()()
    at.bench.advance()
    assert at.bench.view.question is None
    assert at.bench.view.phase is Phase.DECIDING


def test_without_auto_the_question_stays_until_it_is_answered() -> None:
    at = Bench(Asks())
    at.bench.want(Run("x"))
    at.bench.advance()
    at.bodies.pop()()
    at.bench.advance()
    assert at.bench.view.question is not None
    at.bench.answer(Approval(True))
    assert at.bench.view.question is not None
    at.now = 1.0
    at.bench.answer(Approval(True))
    assert at.bench.view.question is None


def test_hints_are_gathered_until_they_cease_and_then_measured_once() -> None:
    at = Bench()
    at.bench.want(Open(measure=False))
    at.bench.advance()
    at.do()
    for _ in range(5):
        at.bench._inbox.put(FilesChanged())
        at.now += QUIET / 2
        at.bench.advance()
    assert at.bodies == []
    at.now += QUIET
    at.bench.advance()
    assert len(at.bodies) == 1
    at.do()
    assert at.session.verifications == 1


def test_hints_during_a_run_are_left_to_the_run() -> None:
    at = Bench(FakeSession(plan=()))
    at.bench.want(Run("x"))
    at.bench.advance()
    at.bench._inbox.put(FilesChanged())
    at.do()
    at.now += 10 * QUIET
    at.bench.advance()
    assert at.bodies == []


def test_stopping_before_a_run_began_forgets_it() -> None:
    at = Bench()
    at.bench.want(Measure())
    at.bench.advance()
    at.bench.want(Run("x"))
    at.bench.stop()
    at.do()
    assert at.session.tasks == []
    assert not at.bench.running


def test_an_error_is_kept_and_told_in_its_own_words() -> None:
    at = Bench()
    at.bench.want(Run("x"))
    at.bench.advance()
    error = UntrustedContract("veriloop.toml", "ab", changed=True)
    at.bench.ended(error)
    assert at.bench.failure is error
    assert at.bench.view.news[-1].text == str(error)
    assert at.bench.view.phase is Phase.IDLE


def test_a_job_that_ends_because_it_was_stopped_is_no_error() -> None:
    at = Bench()
    at.bench.want(Measure())
    at.bench.advance()
    at.bench.want(Run("x"))
    at.bench.ended(Cancelled())
    assert at.bench.failure is None
    assert at.bench.view.news == ()


def test_an_error_that_is_not_typed_says_that_it_is_a_fault() -> None:
    assert "fault in the program" in sentence(KeyError("x"))


def test_a_closed_approver_rejects_what_it_is_asked_afterwards_even_with_auto() -> None:
    for auto in (False, True):
        approver = UserApprover(auto)
        approver.answer(Approval(True))
        approver.close()
        assert approver.approve(PROGRESS, "", ()) == STOPPED
