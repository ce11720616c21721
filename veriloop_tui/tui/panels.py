"""The main screen: its panels and what goes into each at a given moment."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from veriloop_tui.core.excerpt import one_line
from veriloop_tui.core.ports import SessionFacts
from veriloop_tui.tui import paint
from veriloop_tui.tui.job import ready
from veriloop_tui.tui.view import FailingLine, Phase, View
from veriloop_tui.tui.widgets import Bar, CheckKey, Checks, Detail, Line, Tab, TaskInput, Timeline
from veriloop_tui.tui.workbench import Moment

PROMPT = "What should the model do? Enter starts a run."
UNTRUSTED = "no trusted contract: run `veriloop init` or `veriloop trust`, then press m"


class Panels(Vertical):
    """Everything but the footer."""

    def __init__(self, task: str) -> None:
        super().__init__(id="panels")
        self.checks, self.timeline, self.detail = Checks(), Timeline(), Detail()
        self.entry = TaskInput(value=task, id="task", placeholder=PROMPT, compact=True)
        self.head, self.phase, self.facts = Bar("title"), Bar("phase"), Bar("facts")
        self.question, self.news, self.budget = Line("question"), Line("news"), Bar("budget")

    def compose(self) -> ComposeResult:
        with Horizontal(classes="bar"):
            yield self.head
            yield self.phase
        yield self.facts
        with Horizontal(id="main"):
            with Vertical(id="left"):
                yield self.checks
                yield self.timeline
            yield self.detail
        yield self.question
        yield self.news
        yield self.budget
        with Horizontal(id="taskbar"):
            yield Static(">", id="prompt", markup=False)
            yield self.entry

    def show(
        self,
        view: View,
        facts: SessionFacts | None,
        moment: Moment,
        tab: Tab | None,
        on_check: bool,
    ) -> None:
        """Paint the view."""
        self.head.show(_title(view, facts))
        blocked = facts is not None and not ready(facts)
        now = paint.phase(view, moment.waited, moment.stopping, moment.auto, blocked)
        self.phase.show(now)
        self.facts.show(paint.facts_line(view, facts))
        self.budget.show(paint.budget_line(view, moment.elapsed))
        self.news.show(paint.news_line(view.news[-1]) if view.news else Content(""))
        self.question.show(Content("") if moment.auto else paint.question(view))
        self.question.set_class(view.question is not None and not moment.auto, "asking")
        self.checks.show(view)
        self.timeline.show(view)
        self._show_detail(view, facts, tab, on_check)
        self._show_task(facts, moment.running)

    def _show_detail(
        self, view: View, facts: SessionFacts | None, tab: Tab | None, on_check: bool
    ) -> None:
        line = _find(view, self.checks.key) if on_check else None
        attempt = self.timeline.attempt
        if self.checks.key is not None and line is not None:
            self.detail.show_check(self.checks.key, line)
        elif (
            facts is not None
            and not ready(facts)
            and (attempt is None or not self.timeline.has_focus)
        ):
            self.detail.show_text("What to do first", paint.no_contract(facts))
        elif attempt is not None:
            running = view.phase if attempt is view.current else None
            self.detail.show_attempt(attempt, tab, running)
        else:
            self.detail.show_text("Detail", _nothing_yet(view))

    def _show_task(self, facts: SessionFacts | None, running: bool) -> None:
        may_type = facts is None or ready(facts)
        if running:
            placeholder = "a run is on: s stops it"
        elif may_type:
            placeholder = PROMPT
        else:
            placeholder = UNTRUSTED
        trusted_now = self.entry.placeholder == UNTRUSTED and placeholder == PROMPT
        if self.entry.placeholder != placeholder:
            self.entry.placeholder = placeholder
        self.entry.disabled = running or not may_type
        if trusted_now:
            self.entry.focus()
        if self.entry.disabled and self.screen.focused is None:
            self.timeline.focus()


def _title(view: View, facts: SessionFacts | None) -> Content:
    root = one_line(facts.root, 200) if facts is not None else ""
    parts = [("VeriLoop", "bold $text-accent"), (f"  {root}", "")]
    if view.task:
        parts.append((f"  {view.task}", paint.MUTED))
    return Content.assemble(*parts)


def _find(view: View, key: CheckKey | None) -> FailingLine | None:
    for obligation in view.incumbent.obligations if view.incumbent and key else ():
        for line in obligation.failing:
            if key == CheckKey(obligation.name, line.name):
                return line
    return None


def _nothing_yet(view: View) -> Content:
    if view.phase is Phase.MEASURING:
        return Content.styled("Running the contract's commands on the workspace…", paint.MUTED)
    if view.phase is Phase.STARTING:
        return Content.styled("Loading the model; it stays loaded for later runs.", paint.MUTED)
    return Content.styled(
        "No attempts yet. Type a task below; Enter starts a run. "
        "Move to a failing check to see what it says.",
        paint.MUTED,
    )
