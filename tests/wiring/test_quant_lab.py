import threading
from pathlib import Path

import pytest
from textual.widgets import Input

from tests.quant.files import split, write_base
from tests.scripted_gguf import write_random_gguf
from tests.tui.test_quant_lab import Driven, drive, told
from veriloop_tui.core.quant_lab import LabBegun, LabDone, LabEvent, LabPlan, LabProgress, LabRow
from veriloop_tui.errors import Cancelled
from veriloop_tui.wiring.quant_lab import FolderLab


def test_models_are_measured_and_the_report_is_written(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    other = write_random_gguf(tmp_path / "other.gguf", "llama", 4, width=256, blocks=2)
    lab = FolderLab(tmp_path, tmp_path / "records", tmp_path / "out")
    events: list[LabEvent] = []
    lab.run(LabPlan(str(base), (str(other),), "prose", 64, 2), events.append, threading.Event())
    begun, *progress, done = events
    assert isinstance(begun, LabBegun)
    assert all(isinstance(one, LabProgress) for one in progress)
    assert isinstance(done, LabDone)
    assert Path(done.page).read_text("utf-8").startswith("<!doctype html>")
    (row,) = done.rows
    assert row.on_front
    assert row.kld is not None
    assert row.kld.value > 1e-3


def test_shards_are_one_model_and_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    whole = write_base(tmp_path)
    split(whole, tmp_path / "parts")
    (tmp_path / "half.gguf").write_bytes(whole.read_bytes()[:1000])
    (tmp_path / "notes.gguf").write_text("no model")
    found = FolderLab(tmp_path, tmp_path, tmp_path).files()
    assert sorted(file.name for file in found) == ["parts", whole.stem]


def test_stopped_after_a_chunk_it_goes_on_from_there_with_the_same_numbers(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    other = write_random_gguf(tmp_path / "other.gguf", "llama", 4, width=256, blocks=2)
    # Four chunks go through a model at a time, so the first ones are far from the last.
    plan = LabPlan(str(base), (str(other),), "prose", 512, 48)
    stopping, begun = FolderLab(tmp_path, tmp_path / "records", tmp_path / "out"), threading.Event()

    def stop(event: LabEvent) -> None:
        if isinstance(event, LabProgress) and event.rows[0].chunks:
            begun.set()

    with pytest.raises(Cancelled):
        stopping.run(plan, stop, begun)
    went_on = _seen(stopping, plan)
    whole = _seen(FolderLab(tmp_path, tmp_path / "fresh", tmp_path / "out"), plan)
    assert _first_chunks(went_on) > 0
    assert _first_chunks(whole) == 0
    assert _rows(went_on) == _rows(whole)


def _seen(lab: FolderLab, plan: LabPlan) -> list[LabEvent]:
    events: list[LabEvent] = []
    lab.run(plan, events.append, threading.Event())
    return events


def _first_chunks(events: list[LabEvent]) -> int:
    """How many chunks were known when the first new one came."""
    return next(one.rows[0].chunks for one in events if isinstance(one, LabProgress))


def _rows(events: list[LabEvent]) -> tuple[LabRow, ...]:
    return next(one.rows for one in events if isinstance(one, LabDone))


def test_the_screen_measures_real_models_on_a_text_of_ones_own(tmp_path: Path) -> None:
    write_base(tmp_path)
    write_random_gguf(tmp_path / "other.gguf", "llama", 4, width=256, blocks=2)
    text = tmp_path / "text.txt"
    text.write_text("A few words that a model reads. " * 40, "utf-8")

    async def flow(pilot: Driven) -> None:
        for name, value in (("file", str(text)), ("n_ctx", "32"), ("chunks", "2")):
            pilot.app.query_one(f"#{name}", Input).value = value
        await pilot.press("s")
        shown = await told(pilot, "Done; o opens")
        assert "1 front" in shown

    drive(FolderLab(tmp_path, tmp_path / "records", tmp_path / "out"), flow)
    assert "text.txt" in (tmp_path / "out" / "report.md").read_text("utf-8")
