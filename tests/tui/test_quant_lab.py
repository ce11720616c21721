"""The quant lab driven by keys, on a lab whose measurements are made up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, SelectionList

from tests.tui.test_app import screen
from veriloop_tui.core.ports import Cancel
from veriloop_tui.core.quant_lab import (
    LabBegun,
    LabDone,
    LabEvent,
    LabFile,
    LabPlan,
    LabProgress,
    LabRow,
    LabValue,
    QuantLab,
)
from veriloop_tui.errors import Cancelled, MemoryTooSmall, UsageError
from veriloop_tui.tui.quant_lab import QuantLabApp
from veriloop_tui.tui.quant_lab_view import HEADINGS, by_size, cells, points, ticks

Driven = Pilot[None]
HOSTILE = "[red]name[/red]\x1b[31m\nsecond"


def row(name: str, size: int, kld: float, problem: str = "") -> LabRow:
    """A quant of `size` MiB."""
    value = None if problem else LabValue(kld, kld / 10)
    return LabRow(name, size << 20, 4, value, value, value, problem)


@dataclass
class PlayedLab:
    """Tells what it was given to tell, then waits until it is stopped, raises, or is done."""

    rows: tuple[LabRow, ...] = ()
    failure: Exception | None = None
    endless: bool = False
    plans: list[LabPlan] = field(default_factory=list)

    def files(self) -> tuple[LabFile, ...]:
        return tuple(
            LabFile(f"/models/{name}.gguf", name, size << 20, size / 10)
            for name, size in (("base-F16", 160), ("q8", 80), (HOSTILE, 40))
        )

    def corpora(self) -> tuple[str, ...]:
        return ("prose", "code")

    def run(self, plan: LabPlan, told: Callable[[LabEvent], None], cancel: Cancel) -> None:
        self.plans.append(plan)
        told(LabBegun("4 chunks"))
        if self.failure is not None:
            raise self.failure
        told(LabProgress(2, 8, "7 s left", self.rows))
        while self.endless and not cancel.is_set():
            threading.Event().wait(0.01)
        if cancel.is_set():
            raise Cancelled
        told(LabDone(self.rows, "/reports/report.html", ("a notice",)))


def drive(
    lab: QuantLab,
    flow: Callable[[Driven], Coroutine[Any, Any, None]],
    browse: Callable[[str], bool] | None = None,
) -> QuantLabApp:
    app = QuantLabApp(lab, browse)

    async def run() -> None:
        async with app.run_test(size=(150, 40)) as pilot:
            await pilot.pause()
            await flow(pilot)

    asyncio.run(run())
    return app


async def told(pilot: Driven, text: str) -> str:
    """The screen, once it shows a text."""
    for _ in range(400):
        shown = screen(pilot.app)
        if text in shown:
            return shown
        await pilot.pause(0.02)
    raise AssertionError(f"{text!r} never came; the screen shows\n{screen(pilot.app)}")


def test_the_largest_model_is_the_base_and_all_others_are_picked() -> None:
    lab = PlayedLab()

    async def flow(pilot: Driven) -> None:
        await pilot.press("s")
        await told(pilot, "Done; o opens /reports/report.html a notice")

    drive(lab, flow)
    assert lab.plans == [
        LabPlan(
            "/models/base-F16.gguf",
            ("/models/q8.gguf", f"/models/{HOSTILE}.gguf"),
            "prose",
            512,
            0,
        )
    ]


def test_another_base_and_other_quants_are_picked_by_keys() -> None:
    lab = PlayedLab()

    async def flow(pilot: Driven) -> None:
        files = pilot.app.query_one("#files", SelectionList)
        files.highlighted = 1
        await pilot.press("b")
        await pilot.pause()
        assert files.selected == [f"/models/{HOSTILE}.gguf"]
        files.highlighted = 0
        await pilot.press("space")
        files.highlighted = 2
        await pilot.press("space", "s")
        await told(pilot, "Done")

    drive(lab, flow)
    assert lab.plans[0].base == "/models/q8.gguf"
    assert lab.plans[0].quants == ("/models/base-F16.gguf",)


def test_numbers_come_as_they_are_measured_and_hostile_names_stay_text() -> None:
    stopped = row("broken", 20, 0.1, "not finite in chunk 3 at position 300")
    lab = PlayedLab((row(HOSTILE, 40, 0.25), row("q8", 80, 0.004), stopped), endless=True)

    async def flow(pilot: Driven) -> None:
        await pilot.press("s")
        shown = await told(pilot, "2 of 8 chunks · 7 s left")
        assert "0.250000 ± 0.025000" in shown
        assert "[red]name[/red]" in shown
        assert "not finite in chunk 3" in shown
        assert "Pareto front" in shown
        assert pilot.app.query_one("#table", DataTable).row_count == 3
        await pilot.press("x")
        await told(pilot, "whole chunks are kept")

    drive(lab, flow)


def test_leaving_while_it_measures_stops_it_first() -> None:
    lab = PlayedLab((), endless=True)

    async def flow(pilot: Driven) -> None:
        await pilot.press("s")
        await told(pilot, "2 of 8")
        await pilot.press("q")
        for _ in range(200):
            if not pilot.app.is_running:
                return
            await pilot.pause(0.02)

    assert not drive(lab, flow).is_running


def test_what_goes_wrong_is_one_sentence_and_it_can_be_tried_again() -> None:
    lab = PlayedLab(failure=MemoryTooSmall(2 << 30, 1 << 30))

    async def flow(pilot: Driven) -> None:
        await pilot.press("s")
        await told(pilot, "The comparison takes about 2.00 GiB")
        lab.failure = None
        await pilot.press("s")
        await told(pilot, "Done")

    drive(lab, flow)
    assert len(lab.plans) == 2


@pytest.mark.parametrize(("field_", "value"), [("n_ctx", "7"), ("n_ctx", ""), ("chunks", "-1")])
def test_settings_that_make_no_sense_are_named_before_anything_runs(
    field_: str, value: str
) -> None:
    lab = PlayedLab()

    async def flow(pilot: Driven) -> None:
        pilot.app.query_one(f"#{field_}", Input).value = value
        await pilot.press("s")
        await told(pilot, "is a whole number")

    drive(lab, flow)
    assert not lab.plans


def test_a_file_of_ones_own_is_measured_on_and_enter_starts_from_its_field() -> None:
    lab = PlayedLab(endless=True)

    async def flow(pilot: Driven) -> None:
        pilot.app.query_one("#file", Input).focus()
        await pilot.press(*"/s/x", "enter")
        await told(pilot, "2 of 8")
        await pilot.press("x")
        await told(pilot, "whole chunks are kept")

    drive(lab, flow)
    assert [plan.corpus for plan in lab.plans] == ["/s/x"]


@pytest.mark.parametrize(("could", "says"), [(True, "Opened /reports"), (False, "the report is /")])
def test_the_report_is_opened_or_its_path_is_shown(could: bool, says: str) -> None:
    asked: list[str] = []

    def browse(address: str) -> bool:
        asked.append(address)
        return could

    async def flow(pilot: Driven) -> None:
        await pilot.press("o", "s")
        await told(pilot, "Done")
        await pilot.press("o")
        await told(pilot, says)

    drive(PlayedLab(), flow, browse)
    assert asked == ["file:///reports/report.html"]


def test_a_folder_with_one_model_is_refused() -> None:
    class Lonely(PlayedLab):
        def files(self) -> tuple[LabFile, ...]:
            return PlayedLab.files(self)[:1]

    with pytest.raises(UsageError, match="fewer than two models"):
        QuantLabApp(Lonely())


def test_the_front_holds_what_nothing_smaller_beats() -> None:
    rows = by_size(
        [row("c", 10, 0.5), row("a", 30, 0.01), row("worse", 35, 0.2), row("b", 20, 0.1)]
    )
    found = points(rows)
    assert [rows[found.numbers[at] - 1].name for at in found.front] == ["c", "b", "a"]
    assert ticks(found.logs) == ([-2.0, -1.0, 0.0], ["0.01", "0.1", "1"])


def test_a_row_has_a_cell_for_each_heading() -> None:
    for one in (row("a", 1, 0.1), row("a", 1, 0.1, "a problem")):
        assert len(cells(1, one)) == len(HEADINGS)
