"""The terminal app: starts blocking work in threads and shows the view folded from its events."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import DescendantFocus
from textual.widgets import Footer, Input, OptionList
from textual.worker import Worker, WorkerState

from veriloop_tui.core.event import Event, RunEnded
from veriloop_tui.core.excerpt import one_line
from veriloop_tui.core.ports import Approval, Session, SessionFacts
from veriloop_tui.errors import VeriloopError
from veriloop_tui.tui import job as work
from veriloop_tui.tui.job import (
    EarlierRuns,
    FilesChanged,
    Inbox,
    Job,
    Measure,
    Message,
    Open,
    Run,
    UserApprover,
    Wanted,
    ready,
)
from veriloop_tui.tui.panels import Moment, Panels
from veriloop_tui.tui.screens import ReasonScreen, TextScreen, keys_text, news_text
from veriloop_tui.tui.view import (
    View,
    answered,
    as_history,
    at_rest,
    coalesced,
    fold,
    measuring,
    tell,
)
from veriloop_tui.tui.widgets import Tab

FRAMES = 20
QUIET = 0.6
REACTION = 0.3
"""Seconds a question must have been on the screen before a key can be meant for it."""


class VeriloopApp(App[RunEnded | None]):
    """One workspace on the screen. Never waits for the model or the tests."""

    CSS_PATH = "app.tcss"
    TITLE = "VeriLoop"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "task", "Task"),
        Binding("a", "approve", "Approve"),
        Binding("r", "reject", "Reject"),
        Binding("s", "stop", "Stop"),
        Binding("m", "measure", "Measure"),
        Binding("1", "tab('answer')", "Answer", show=False),
        Binding("2", "tab('diff')", "Diff", show=False),
        Binding("3", "tab('evidence')", "Evidence", show=False),
        Binding("f", "follow", "Follow"),
        Binding("n", "news", "News"),
        Binding("question_mark,f1", "keys", "Keys", key_display="?"),
        Binding("q", "quit_app", "Quit"),
        Binding("d", "colours", "Dark/light", show=False),
        Binding("ctrl+c", "interrupt", "Stop or quit", show=False, priority=True),
    ]

    def __init__(
        self,
        session: Session,
        task: str = "",
        start: bool = False,
        auto: bool = False,
        exit_when_done: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.session, self.first_task, self.start = session, task, start
        self.auto, self.exit_when_done, self.clock = auto, exit_when_done, clock
        self.view = View()
        self.facts: SessionFacts | None = None
        self.inbox: Inbox = Inbox()
        self.job: Job | None = None
        self.next_wanted: Wanted | None = None
        self.last: RunEnded | None = None
        self.failure: VeriloopError | None = None
        self.changed_at: float | None = None
        self.phase_since = self.run_since = clock()
        self.leaving = False
        self.tab: Tab | None = None
        self.on_check = False
        self.closed = threading.Event()
        self.panels = Panels(task="" if start else task)

    def compose(self) -> ComposeResult:
        yield self.panels
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Open the workspace; the screen is there at once."""
        self._begin(Open(measure=not self.start))
        if self.start:
            self.next_wanted = Run(self.first_task)
        (self.panels.timeline if self.start else self.panels.entry).focus()
        watch = partial(work.watch, self.session, self.inbox, self.closed)
        self.run_worker(watch, thread=True, exit_on_error=False, name="watch", group="watch")
        self.set_interval(1 / FRAMES, self._frame)

    def on_unmount(self) -> None:
        """Let every thread end, however the app ended."""
        self.closed.set()
        if self.job is not None:
            self.job.stop()

    # Work in threads.

    @property
    def running(self) -> bool:
        """Whether a run is on or about to start."""
        on = self.job is not None and isinstance(self.job.wanted, Run)
        return on or isinstance(self.next_wanted, Run)

    def _begin(self, wanted: Wanted) -> None:
        job = self.job = Job(wanted, UserApprover(self.auto))
        if isinstance(wanted, Run):
            self.run_since, self.failure = self.clock(), None
        else:
            self.changed_at = None
            self._become(measuring(self.view))
        perform = partial(work.perform, self.session, job, self.inbox)
        self.run_worker(perform, thread=True, exit_on_error=False, name="job", group="job")

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A thread has ended: well, or with an error that becomes a sentence."""
        if event.state not in (WorkerState.SUCCESS, WorkerState.ERROR, WorkerState.CANCELLED):
            return
        error = event.worker.error
        if event.worker.name == "watch":
            if error is not None:
                text = f"Files are not watched ({error}); press m to measure after an edit."
                self._become(tell(self.view, "error", text))
            return
        if self.job is None:
            return
        self._take(self.inbox.take())
        was_run, self.job = isinstance(self.job.wanted, Run), None
        self._become(at_rest(self.view))
        if error is not None:
            self.failure = error if isinstance(error, VeriloopError) else None
            self._become(tell(self.view, "error", sentence(error)))
            if self.exit_when_done:
                self.next_wanted = None
        if self.leaving or (self.exit_when_done and (was_run or error is not None)):
            self.exit(self.last)

    def _take(self, messages: list[Message]) -> None:
        events: list[Event] = []
        for message in messages:
            match message:
                case SessionFacts():
                    self.facts = message
                case FilesChanged():
                    self.changed_at = None if self.running else self.clock()
                case EarlierRuns():
                    past = reduce(fold, message.events, View())
                    self._become(replace(as_history(past), phase=self.view.phase))
                case _:
                    events.append(message)
                    self.last = message if isinstance(message, RunEnded) else self.last
        self._become(reduce(fold, coalesced(events), self.view))

    def _become(self, view: View) -> None:
        asked_before, phase_before = self.view.question, self.view.phase
        self.view = view
        if view.phase is not phase_before:
            self.phase_since = self.clock()
        if view.question is not None and asked_before is None and not self.auto:
            self.tab, self.on_check = None, False
            self.panels.timeline.follow_newest = True
            self.bell()

    # Frames.

    def _frame(self) -> None:
        if not self.is_running:  # The timer may fire once more while the screens are taken down.
            return
        self._take(self.inbox.take())
        now = self.clock()
        if self.job is None and self.next_wanted is not None:
            wanted, self.next_wanted = self.next_wanted, None
            self._begin(wanted)
        elif self.job is None and self.changed_at is not None and now - self.changed_at >= QUIET:
            self._begin(Measure())
        if self.view.question is None and isinstance(self.screen, ReasonScreen):
            self.pop_screen()
        on = self.job is not None and isinstance(self.job.wanted, Run)
        spent = self.view.spent.wall_time
        self.panels.show(
            self.view,
            self.facts,
            Moment(
                waited=now - self.phase_since,
                elapsed=max(spent, now - self.run_since) if on else spent,
                stopping=self.job is not None and self.job.cancel.is_set(),
                running=self.running,
                auto=self.auto,
            ),
            self.tab,
            self.on_check,
        )
        keys = (self.running, self.job is None, self.view.question, self.facts)
        if keys != self._keys_shown:
            self._keys_shown = keys
            self.refresh_bindings()

    _keys_shown: object = None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Show and allow only the keys that do something now."""
        match action:
            case "approve" | "reject":
                return self.view.question is not None and not self.auto
            case "stop":
                return self.running
            case "task":
                return not self.running and self.facts is not None and ready(self.facts)
            case "measure":
                return self.job is None
            case _:
                return True

    # What the user does.

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter in the task line starts a run; a measurement that is on gives way."""
        task = event.value.strip()
        if self.running or self.facts is None or not ready(self.facts):
            return
        if not task:
            self._become(tell(self.view, "note", "Type what should be done, then press Enter."))
            return
        self.panels.entry.value = ""
        self.next_wanted = Run(task)
        if self.job is not None:
            self.job.stop()
        self.action_follow()

    def on_task_input_left(self) -> None:
        """Escape leaves the task line for the timeline."""
        self.panels.timeline.focus()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """The detail shows what the user moved to."""
        if event.option_list.has_focus:
            self.on_check = event.option_list is self.panels.checks

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """The detail shows what belongs to the panel that the user went to."""
        if event.widget in (self.panels.checks, self.panels.timeline):
            self.on_check = event.widget is self.panels.checks

    def action_task(self) -> None:
        """Go to the task line."""
        self.panels.entry.focus()

    def action_approve(self) -> None:
        """Let the candidate be committed."""
        self._answer(Approval(True))

    async def action_reject(self) -> None:
        """Ask for the reason, then reject."""
        asked = self.view.question

        def rejected(reason: str | None) -> None:
            if reason is not None and self.view.question is asked:
                self._answer(Approval(False, one_line(reason, 400)))

        await self.push_screen(ReasonScreen(), rejected)

    def _answer(self, approval: Approval) -> None:
        seen = self.clock() - self.phase_since >= REACTION
        if self.view.question is not None and self.job is not None and seen:
            self._become(answered(self.view))
            self.job.approver.answer(approval)

    def action_stop(self) -> None:
        """Cancel the run at once; what was committed stays."""
        if self.next_wanted is not None:
            self.next_wanted = None
            self._become(tell(self.view, "note", "Stopped before the run began."))
        elif self.job is not None:
            self.job.stop()

    def action_measure(self) -> None:
        """Measure the workspace as it is."""
        self.next_wanted = Measure()

    def action_tab(self, tab: Tab) -> None:
        """Show this part of the attempt until told otherwise."""
        self.tab, self.on_check = tab, False

    def action_follow(self) -> None:
        """Back to the newest attempt and the part of it that matters now."""
        self.tab, self.on_check = None, False
        self.panels.timeline.focus()
        self.panels.timeline.follow_newest = True

    def action_keys(self) -> None:
        """Show the keys."""
        self.push_screen(TextScreen(keys_text()))

    def action_news(self) -> None:
        """Read all that was told."""
        self.push_screen(TextScreen(news_text(self.view.news)))

    def action_colours(self) -> None:
        """Dark or light."""
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"

    def action_interrupt(self) -> None:
        """Stop a run; without one, quit."""
        if self.running and not (self.job is not None and self.job.cancel.is_set()):
            self.action_stop()
        else:
            self.action_quit_app()

    def action_quit_app(self) -> None:
        """End the run, then the app; asked twice, end the app without waiting."""
        self.next_wanted = None
        if self.job is None or self.leaving:
            self.exit(self.last)
        else:
            self.leaving = True
            self.job.stop()


def sentence(error: BaseException) -> str:
    """An error as one sentence; what is no typed error is a fault of the program and says so."""
    if isinstance(error, VeriloopError):
        return str(error)
    return f"A fault in the program ended this work ({type(error).__name__}: {error})."


def run_app(
    session: Session,
    task: str = "",
    start: bool = False,
    auto: bool = False,
    exit_when_done: bool = False,
) -> RunEnded | None:
    """Show the app on a workspace until the user leaves; the last run's end, if there was one.

    `start` begins a run of `task` at once; with `auto` every verified candidate is committed
    without a question; with `exit_when_done` the app ends with that run, and an error that ended
    it is raised as the `VeriloopError` it was.
    """
    app = VeriloopApp(session, task, start, auto, exit_when_done)
    ended = app.run()
    if exit_when_done and app.failure is not None:
        raise app.failure
    return ended
