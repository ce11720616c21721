"""The terminal app: starts blocking work in threads and shows the view folded from its events."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import DescendantFocus
from textual.widgets import Footer, Input, OptionList
from textual.worker import Worker, WorkerState

from veriloop_tui.core.event import RunEnded
from veriloop_tui.core.excerpt import one_line
from veriloop_tui.core.ports import Approval, Session
from veriloop_tui.errors import SettingsError
from veriloop_tui.tui.job import Measure, Open, Run
from veriloop_tui.tui.panels import Panels
from veriloop_tui.tui.screens import ReasonScreen, TextScreen, keys_text, news_text
from veriloop_tui.tui.view import Question
from veriloop_tui.tui.widgets import Tab
from veriloop_tui.tui.workbench import Workbench

FRAMES = 15


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
        self._first_task, self._start, self._exit_when_done = task, start, exit_when_done
        self._leaving = False
        self._tab: Tab | None = None
        self._on_check = False
        self._asked: Question | None = None
        self._keys_shown: object = None
        self.bench = Workbench(session, auto, clock, self._in_thread)
        self.panels = Panels(task="" if start else task)

    def compose(self) -> ComposeResult:
        yield self.panels
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Open the workspace; the screen is there at once."""
        self.bench.want(Open(measure=not self._start))
        self.bench.advance()
        if self._start:
            self.bench.want(Run(self._first_task))
        (self.panels.timeline if self._start else self.panels.entry).focus()
        self._in_thread(self.bench.watch, "watch")
        self.set_interval(1 / FRAMES, self._frame)

    def on_unmount(self) -> None:
        """Let every thread end, however the app ended."""
        self.bench.close()

    def _in_thread(self, body: Callable[[], None], name: str = "job") -> None:
        self.run_worker(body, thread=True, exit_on_error=False, name=name, group=name)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A thread has ended."""
        if event.state not in (WorkerState.SUCCESS, WorkerState.ERROR, WorkerState.CANCELLED):
            return
        error, job = event.worker.error, self.bench.job
        if event.worker.name == "watch":
            if error is not None:
                text = f"Files are not watched ({error}); press m to measure after an edit."
                self.bench.tell("error", text)
            return
        self.bench.ended(error)
        over = error is not None or (job is not None and isinstance(job.wanted, Run))
        if self._leaving or (self._exit_when_done and over):
            self.exit(self.bench.last)

    def _frame(self) -> None:
        if not self.is_running:  # The timer may fire once more while the screens are taken down.
            return
        self.bench.advance()
        asked = self.bench.view.question
        if asked is not None and asked is not self._asked:
            self._tab, self._on_check = None, False
            self.panels.timeline.follow_newest = True
            self.bell()
        self._asked = asked
        if asked is None and isinstance(self.screen, ReasonScreen):
            self.pop_screen()
        view, facts, moment = self.bench.view, self.bench.facts, self.bench.moment()
        self.panels.show(view, facts, moment, self._tab, self._on_check)
        keys = (moment.running, self.bench.may_run, self.bench.job is None, asked)
        if keys != self._keys_shown:
            self._keys_shown = keys
            self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Show and allow only the keys that do something now."""
        match action:
            case "approve" | "reject":
                return self.bench.view.question is not None
            case "stop":
                return self.bench.running
            case "task":
                return self.bench.may_run
            case "measure":
                return self.bench.job is None
            case _:
                return True

    # What the user does.

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter in the task line starts a run; a measurement that is on gives way."""
        task = event.value.strip()
        if not task:
            self.bench.tell("note", "Type what should be done, then press Enter.")
        elif self.bench.may_run:
            self.panels.entry.value = ""
            self.bench.want(Run(task))
            self.action_follow()

    def on_task_input_left(self) -> None:
        """Escape leaves the task line for the timeline."""
        self.panels.timeline.focus()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """The detail shows what the user moved to."""
        if event.option_list.has_focus:
            self._on_check = event.option_list is self.panels.checks

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """The detail shows what belongs to the panel that the user went to."""
        if event.widget in (self.panels.checks, self.panels.timeline):
            self._on_check = event.widget is self.panels.checks

    def action_task(self) -> None:
        """Go to the task line."""
        self.panels.entry.focus()

    def action_approve(self) -> None:
        """Let the candidate be committed."""
        self.bench.answer(Approval(True))

    def action_reject(self) -> None:
        """Ask for the reason, then reject."""
        asked = self.bench.view.question

        def rejected(reason: str | None) -> None:
            if reason is not None and self.bench.view.question is asked:
                self.bench.answer(Approval(False, one_line(reason, 400)))

        self.push_screen(ReasonScreen(), rejected)

    def action_stop(self) -> None:
        """Cancel the run at once; what was committed stays."""
        self.bench.stop()

    def action_measure(self) -> None:
        """Measure the workspace as it is."""
        self.bench.want(Measure())

    def action_tab(self, tab: Tab) -> None:
        """Show this part of the attempt until told otherwise."""
        self._tab, self._on_check = tab, False

    def action_follow(self) -> None:
        """Back to the newest attempt and the part of it that matters now."""
        self._tab, self._on_check = None, False
        self.panels.timeline.focus()
        self.panels.timeline.follow_newest = True

    def action_keys(self) -> None:
        """Show the keys."""
        self.push_screen(TextScreen(keys_text()))

    def action_news(self) -> None:
        """Read all that was told."""
        self.push_screen(TextScreen(news_text(self.bench.view.news)))

    def action_colours(self) -> None:
        """Dark or light."""
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"

    def action_interrupt(self) -> None:
        """Stop a run; without one, quit."""
        if self.bench.running and not self.bench.stopping:
            self.bench.stop()
        else:
            self.action_quit_app()

    def action_quit_app(self) -> None:
        """End the run, then the app; asked twice, end the app without waiting."""
        if self.bench.job is None or self._leaving:
            self.exit(self.bench.last)
        else:
            self._leaving = True
            self.bench.stop()


def run_app(
    session: Session,
    task: str = "",
    start: bool = False,
    auto: bool = False,
    exit_when_done: bool = False,
    theme: str = "",
) -> RunEnded | None:
    """Show the app on a workspace until the user leaves; the last run's end, if there was one.

    `start` begins a run of `task` at once; with `auto` every verified candidate is committed
    without a question; with `exit_when_done` the app ends with that run, and an error that ended
    it is raised as the `VeriloopError` it was. Raises `SettingsError` for an unknown `theme`.
    """
    app = VeriloopApp(session, task, start, auto, exit_when_done)
    if theme:
        if theme not in app.available_themes:
            known = ", ".join(sorted(app.available_themes))
            raise SettingsError("settings", "theme", f"{theme!r} is not one of {known}")
        app.theme = theme
    ended = app.run()
    if exit_when_done and app.bench.failure is not None:
        raise app.bench.failure
    return ended
