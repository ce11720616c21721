"""The work on one workspace: the one job that is on, what comes next, and the view of it all.

Knows no widgets. Everything here is called from the UI thread; only `job.perform` and `job.watch`
run elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce

from veriloop_tui.core.event import Event, RunEnded
from veriloop_tui.core.ports import Approval, Session, SessionFacts
from veriloop_tui.errors import Cancelled, VeriloopError
from veriloop_tui.tui.fold import (
    answered,
    as_history,
    at_rest,
    coalesced,
    fold,
    measuring,
    starting,
    tell,
)
from veriloop_tui.tui.job import (
    EarlierRuns,
    FilesChanged,
    Inbox,
    Job,
    Measure,
    Run,
    UserApprover,
    Wanted,
    perform,
    ready,
    watch,
)
from veriloop_tui.tui.view import Tone, View

QUIET = 0.6
"""Seconds without further hints before changed files are measured."""
REACTION = 0.3
"""Seconds a question must have been on the screen before a key can be meant for it."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What the view does not know: times in seconds, and what is on its way.

    `waited` is the time in this phase, `elapsed` the run's so far.
    """

    waited: float
    elapsed: float
    stopping: bool
    running: bool
    auto: bool


class Workbench:
    """Starts one job at a time through `begin`, which runs what it is given in a thread."""

    def __init__(
        self,
        session: Session,
        auto: bool,
        clock: Callable[[], float],
        begin: Callable[[Callable[[], None]], None],
    ) -> None:
        self._session, self._auto, self._clock, self._begin = session, auto, clock, begin
        self._inbox = Inbox()
        self._closed = threading.Event()
        self._next: Wanted | None = None
        self._changed_at: float | None = None
        self._phase_since = self._run_since = clock()
        self.view = View()
        self.facts: SessionFacts | None = None
        self.job: Job | None = None
        self.last: RunEnded | None = None
        self.failure: VeriloopError | None = None

    @property
    def running(self) -> bool:
        """Whether a run is on or about to start."""
        on = self.job is not None and isinstance(self.job.wanted, Run)
        return on or isinstance(self._next, Run)

    @property
    def stopping(self) -> bool:
        """Whether the job that is on has been told to end."""
        return self.job is not None and self.job.cancel.is_set()

    @property
    def may_run(self) -> bool:
        """Whether a task can be started now."""
        return not self.running and self.facts is not None and ready(self.facts)

    def moment(self) -> Moment:
        """Now."""
        now, spent = self._clock(), self.view.spent.wall_time
        on = self.job is not None and isinstance(self.job.wanted, Run)
        return Moment(
            waited=now - self._phase_since,
            elapsed=max(spent, now - self._run_since) if on else spent,
            stopping=self.stopping,
            running=self.running,
            auto=self._auto,
        )

    def want(self, wanted: Wanted) -> None:
        """Do this next; a run does not wait for a measurement to finish."""
        self._next = wanted
        if self.job is not None and not isinstance(self.job.wanted, Run):
            self.job.stop()

    def advance(self) -> None:
        """Take in what threads have told, and start what is due."""
        self._take()
        if self.job is not None:
            return
        if self._next is not None:
            wanted, self._next = self._next, None
            self._start(wanted)
        elif self._changed_at is not None and self._clock() - self._changed_at >= QUIET:
            self._start(Measure())

    def ended(self, error: BaseException | None) -> None:
        """The job's thread has ended: well, or with an error that becomes a sentence."""
        self._take()
        as_told = self.stopping and isinstance(error, Cancelled)
        self.job = None
        self._become(at_rest(self.view))
        if error is not None and not as_told:
            self.failure = error if isinstance(error, VeriloopError) else None
            self.tell("error", sentence(error))

    def answer(self, approval: Approval) -> None:
        """Answer the open question, if the user can have seen it."""
        seen = self._clock() - self._phase_since >= REACTION
        if self.view.question is not None and self.job is not None and seen:
            self._become(answered(self.view))
            self.job.approver.answer(approval)

    def stop(self) -> None:
        """Cancel what is on and forget what was to come; returns at once."""
        if self._next is not None:
            self.tell("note", "Stopped before it began.")
        self._next = None
        if self.job is not None:
            self.job.stop()

    def close(self) -> None:
        """Let every thread end."""
        self._closed.set()
        self.stop()

    def tell(self, tone: Tone, text: str) -> None:
        """A sentence for the user."""
        self._become(tell(self.view, tone, text))

    def watch(self) -> None:
        """Take hints of changed files until closed. Blocks; raises what the session raises."""
        watch(self._session, self._inbox, self._closed)

    def _start(self, wanted: Wanted) -> None:
        self.job = Job(wanted, UserApprover(self._auto))
        if isinstance(wanted, Run):
            self._run_since, self.failure = self._clock(), None
            self._become(starting(self.view))
        else:
            self._changed_at = None
            self._become(measuring(self.view))
        self._begin(partial(perform, self._session, self.job, self._inbox))

    def _take(self) -> None:
        events: list[Event] = []
        for message in self._inbox.take():
            match message:
                case SessionFacts():
                    self.facts = message
                case FilesChanged():
                    self._changed_at = None if self.running else self._clock()
                case EarlierRuns():
                    past = reduce(fold, message.events, View())
                    self._become(replace(as_history(past), phase=self.view.phase))
                case _:
                    events.append(message)
                    self.last = message if isinstance(message, RunEnded) else self.last
        self._become(reduce(fold, coalesced(events), self.view))

    def _become(self, view: View) -> None:
        now = answered(view) if self._auto and view.question is not None else view
        if now.phase is not self.view.phase:
            self._phase_since = self._clock()
        self.view = now


def sentence(error: BaseException) -> str:
    """An error as one sentence; what is no typed error is a fault of the program and says so."""
    if isinstance(error, VeriloopError):
        return str(error)
    return f"A fault in the program ended this work ({type(error).__name__}: {error})."
