"""Blocking work off the UI thread: its cancel flag, its inbox, and the user's answers to it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import assert_never

from veriloop_tui.core.event import Event
from veriloop_tui.core.ports import Approval, Session, SessionFacts
from veriloop_tui.core.transition import Transition

STOPPED = Approval(False, "the run was stopped before an answer")


@dataclass(frozen=True, slots=True)
class FilesChanged:
    """A hint: files of the workspace may have changed."""


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """All that was recorded on this workspace before."""

    events: tuple[Event, ...]


Message = Event | SessionFacts | EarlierRuns | FilesChanged


class Inbox:
    """What threads have told and the screen has not taken yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: list[Message] = []

    def put(self, message: Message) -> None:
        """Add one message; never blocks for long."""
        with self._lock:
            self._messages.append(message)

    def take(self) -> list[Message]:
        """All that has come in since the last time."""
        with self._lock:
            taken, self._messages = self._messages, []
        return taken


class UserApprover:
    """Asks the user: blocks the run's thread until there is an answer or the run is stopped.

    One answer serves one question. With `auto` every question is answered with yes at once.
    """

    def __init__(self, auto: bool) -> None:
        self._auto = auto
        self._answers: queue.SimpleQueue[Approval] = queue.SimpleQueue()
        self._closed = threading.Event()

    def approve(self, transition: Transition, diff: str, warnings: tuple[str, ...]) -> Approval:
        """Block until there is an answer; rejected once closed."""
        if self._closed.is_set():
            return STOPPED
        if self._auto:
            return Approval(True)
        return self._answers.get()

    def answer(self, approval: Approval) -> None:
        """Give the answer to the question that the run asked last."""
        self._answers.put(approval)

    def close(self) -> None:
        """Answer no to this and every later question."""
        self._closed.set()
        self._answers.put(STOPPED)


@dataclass(frozen=True, slots=True)
class Open:
    """What is known without running anything, what was recorded, then (if wanted) a measurement."""

    measure: bool


@dataclass(frozen=True, slots=True)
class Measure:
    """The contract on the workspace as it is, if the contract may run."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the controller."""

    task: str


Wanted = Open | Measure | Run


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of blocking work, its cancel flag and its way to ask the user."""

    wanted: Wanted
    approver: UserApprover
    cancel: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """Ask the work to end; returns at once."""
        self.cancel.set()
        self.approver.close()


def perform(session: Session, job: Job, inbox: Inbox) -> None:
    """Do the work, in a thread; what happens goes to the inbox. Raises what the session raises."""
    match job.wanted:
        case Open(measure):
            facts = session.facts()
            inbox.put(facts)
            inbox.put(EarlierRuns(session.recorded()))
            if measure:
                _measure(session, facts, job, inbox)
        case Measure():
            facts = session.facts()
            inbox.put(facts)
            _measure(session, facts, job, inbox)
        case Run(task):
            _pour(session.run(task, job.approver, job.cancel), inbox)
        case _:
            assert_never(job.wanted)


def _measure(session: Session, facts: SessionFacts, job: Job, inbox: Inbox) -> None:
    if ready(facts):
        _pour(session.verify(job.cancel), inbox)
        # Measuring settles which rung of the staging ladder is in use.
        inbox.put(session.facts())


def watch(session: Session, inbox: Inbox, until: threading.Event) -> None:
    """Pass hints of changed files on, until told to end."""
    with session.watch(lambda: inbox.put(FilesChanged())):
        until.wait()


def ready(facts: SessionFacts) -> bool:
    """Whether there is a contract whose commands may run."""
    return bool(facts.contract_path) and facts.trusted


def _pour(events: Iterator[Event], inbox: Inbox) -> None:
    for event in events:
        inbox.put(event)
