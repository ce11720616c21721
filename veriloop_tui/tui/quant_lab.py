"""The screen for comparing quants: pick files, watch the table fill, see size against loss."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, assert_never

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import DataTable, Footer, Input, Label, ProgressBar, Select, SelectionList
from textual.widgets.selection_list import Selection
from textual.worker import Worker, WorkerState
from textual_plotext import PlotextPlot

from veriloop_tui.core.quant_lab import (
    LabBegun,
    LabDone,
    LabEvent,
    LabPlan,
    LabProgress,
    LabRow,
    QuantLab,
)
from veriloop_tui.errors import Cancelled, UsageError, VeriloopError
from veriloop_tui.tui.quant_lab_browser import browse_beside
from veriloop_tui.tui.quant_lab_view import HEADINGS, by_size, cells, file_label, points, ticks

_FRAMES = 10


class Setting(Input):
    """A field; letters are text in it, so it says which key starts from there."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "submit", "Start")]


class QuantLabApp(App[None]):
    """Quants of one folder on the screen. Never waits for a model."""

    CSS_PATH = "quant_lab.tcss"
    TITLE = "VeriLoop quant lab"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "base", "Make it the base"),
        Binding("s", "start", "Start"),
        Binding("x,escape", "stop", "Stop", key_display="x"),
        Binding("o", "open", "Open the report"),
        Binding("q", "quit_lab", "Quit"),
        Binding("ctrl+c", "quit_lab", "Quit", show=False, priority=True),
    ]

    def __init__(self, lab: QuantLab, browse: Callable[[str], bool] | None = None) -> None:
        """Read the folder; `browse` opens an address and says whether it could.

        Raises `UsageError`.
        """
        super().__init__()
        self._lab = lab
        self._browse = browse or browse_beside
        self._files = lab.files()
        if len(self._files) < 2:
            raise UsageError(
                "There are fewer than two models here; make some with `veriloop quant make`, or "
                "name another folder."
            )
        self._base = self._files[0].path
        self._cancel: threading.Event | None = None
        self._inbox: list[LabEvent] = []
        self._lock = threading.Lock()
        self._page = ""
        self._leaving = False

    def compose(self) -> ComposeResult:
        """Files and settings beside the plot, numbers below."""
        with Horizontal(id="main"):
            with Vertical(id="left"):
                yield SelectionList[str](*self._selections(), id="files")
                with Horizontal(classes="field"):
                    yield Label("text")
                    names = self._lab.corpora()
                    yield Select[str](
                        [(name, name) for name in names],
                        value=names[0],
                        allow_blank=False,
                        compact=True,
                        id="corpus",
                    )
                with Horizontal(classes="field"):
                    yield Label("or a file")
                    yield Setting(placeholder="path of a text", compact=True, id="file")
                with Horizontal(classes="field"):
                    yield Label("tokens per chunk")
                    yield Setting("512", type="integer", max_length=7, compact=True, id="n_ctx")
                with Horizontal(classes="field"):
                    yield Label("chunks, 0 for all")
                    yield Setting("0", type="integer", max_length=7, compact=True, id="chunks")
            yield PlotextPlot(id="plot")
        yield DataTable[object](id="table", cursor_type="none", zebra_stripes=True)
        yield ProgressBar(id="progress", show_eta=False)
        yield Label(id="told", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Everything is there at once; numbers come as they are measured."""
        files = self.query_one("#files", SelectionList)
        files.border_title = "models: space picks a quant, b makes the base"
        self.query_one("#table", DataTable).add_columns(*HEADINGS)
        self._say("Pick the quants, then press s; tab goes to the settings, enter starts there.")
        files.focus()
        self.set_interval(1 / _FRAMES, self._frame)

    def on_unmount(self) -> None:
        """Let the measuring end, however the app ended."""
        if self._cancel is not None:
            self._cancel.set()

    def _selections(self) -> list[Selection[str]]:
        return [
            Selection(
                file_label(file, base=file.path == self._base),
                file.path,
                initial_state=file.path != self._base,
                disabled=file.path == self._base,
            )
            for file in self._files
        ]

    # What the user does.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Show and allow only the keys that do something now."""
        match action:
            case "stop":
                return self._cancel is not None
            case "start" | "base":
                return self._cancel is None
            case "open":
                return bool(self._page)
            case _:
                return True

    def action_base(self) -> None:
        """The highlighted model becomes the base."""
        files = self.query_one("#files", SelectionList)
        at = files.highlighted
        if at is None:
            return
        picked = set(files.selected)
        self._base = self._files[at].path
        files.clear_options()
        files.add_options(self._selections())
        for file in self._files:
            if file.path not in picked and file.path != self._base:
                files.deselect(file.path)
        files.highlighted = at

    def action_start(self) -> None:
        """Measure what is picked."""
        plan = self._plan()
        if isinstance(plan, str):
            self._say(plan)
            return
        self._page, self._cancel = "", threading.Event()
        cancel = self._cancel
        # From here every key is a command again.
        self.query_one("#files", SelectionList).focus()
        self.query_one("#table", DataTable).clear()
        self.query_one(ProgressBar).update(total=None)
        self.set_class(True, "measuring")
        self.set_class(False, "plotted")
        self._say("Reading the models …")
        self.run_worker(
            lambda: self._lab.run(plan, self._put, cancel), thread=True, exit_on_error=False
        )
        self.refresh_bindings()

    def on_input_submitted(self) -> None:
        """Start from a field."""
        if self._cancel is None:
            self.action_start()

    def _plan(self) -> LabPlan | str:
        """What is to be measured, or what is missing for it."""
        picked = set(self.query_one("#files", SelectionList).selected)
        quants = tuple(
            file.path for file in self._files if file.path in picked and file.path != self._base
        )
        if not quants:
            return "Pick at least one quant with the space bar."
        n_ctx, chunks = (self.query_one(f"#{name}", Input).value for name in ("n_ctx", "chunks"))
        if not n_ctx.isdecimal() or int(n_ctx) < 8:
            return "Tokens per chunk is a whole number from 8 up."
        if not chunks.isdecimal():
            return "Chunks is a whole number, 0 for all."
        own = self.query_one("#file", Input).value.strip()
        # An absolute path is never taken for the name of a text that ships.
        chosen = str(self.query_one("#corpus", Select).value)
        corpus = str(Path(own).expanduser().absolute()) if own else chosen
        return LabPlan(self._base, quants, corpus, int(n_ctx), int(chunks))

    def action_stop(self) -> None:
        """End the measuring; whole chunks are kept."""
        if self._cancel is not None:
            self._cancel.set()
            self._say("Stopping …")

    def action_open(self) -> None:
        """Show the report in a browser."""
        page = Path(self._page).absolute()
        if self._browse(page.as_uri()):
            self._say(f"Opened {page} in the browser.")
        else:
            self._say(f"No browser with a window was found; the report is {page}")

    def action_quit_lab(self) -> None:
        """Stop what runs, then leave."""
        if self._cancel is None:
            self.exit()
        else:
            self._leaving = True
            self.action_stop()

    # What the measuring tells.

    def _put(self, event: LabEvent) -> None:
        with self._lock:
            self._inbox.append(event)

    def _frame(self) -> None:
        with self._lock:
            events, self._inbox = self._inbox, []
        for event in events:
            match event:
                case LabBegun():
                    self._say(event.told)
                case LabProgress():
                    self.query_one(ProgressBar).update(total=event.of, progress=event.done)
                    self._say(f"{event.done} of {event.of} chunks · {event.left} · x stops")
                    self._show(event.rows)
                case LabDone():
                    self._page = event.page
                    self._show(event.rows)
                    self._say(" ".join((f"Done; o opens {event.page}", *event.notices)))
                    self.refresh_bindings()
                case _:
                    assert_never(event)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """The measuring has ended."""
        if event.state not in (WorkerState.SUCCESS, WorkerState.ERROR, WorkerState.CANCELLED):
            return
        self._frame()
        self._cancel = None
        self.set_class(False, "measuring")
        match event.worker.error:
            case None:
                pass
            case Cancelled():
                self._say("Stopped; whole chunks are kept, s goes on from them.")
            case VeriloopError() as problem:
                self._say(f"! {problem}")
            case problem:
                raise problem
        if self._leaving:
            self.exit()
        self.refresh_bindings()

    def _say(self, text: str) -> None:
        self.query_one("#told", Label).update(text)

    def _show(self, rows: tuple[LabRow, ...]) -> None:
        ordered = by_size(rows)
        table = self.query_one("#table", DataTable)
        table.clear()
        for number, row in enumerate(ordered, 1):
            table.add_row(*cells(number, row))
        self._draw(ordered)

    def _draw(self, rows: tuple[LabRow, ...]) -> None:
        plot = self.query_one("#plot", PlotextPlot)
        found = points(rows)
        plot.plt.clear_figure()
        self.set_class(bool(found.sizes), "plotted")
        if found.sizes:
            plot.plt.title("mean KLD against size; line: Pareto front")
            plot.plt.xlabel("MiB")
            plot.plt.yticks(*ticks(found.logs))
            if len(found.front) > 1:
                plot.plt.plot(
                    [found.sizes[at] for at in found.front], [found.logs[at] for at in found.front]
                )
            plot.plt.scatter(found.sizes, found.logs, marker="●")
            for number, size, log in zip(found.numbers, found.sizes, found.logs, strict=True):
                plot.plt.text(f" {number}", size, log)
        plot.refresh()


def run_lab(lab: QuantLab) -> None:
    """Show the screen until the user leaves. Raises `UsageError`."""
    QuantLabApp(lab).run()
