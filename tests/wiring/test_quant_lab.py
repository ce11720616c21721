import threading
from pathlib import Path

import pytest
from textual.widgets import Input

from tests.quant.files import split, write_base
from tests.scripted_gguf import write_random_gguf
from tests.tui.test_quant_lab import Driven, drive, told
from veriloop_tui.core.quant_lab import LabBegun, LabDone, LabEvent, LabPlan, LabProgress
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
    plan = LabPlan(str(base), (str(other),), "prose", 64, 64)

    def chunks_shown(lab: FolderLab, stop_at: int) -> tuple[list[int], list[LabEvent]]:
        events: list[LabEvent] = []
        cancel = threading.Event()

        def watch(event: LabEvent) -> None:
            events.append(event)
            if isinstance(event, LabProgress) and any(row.chunks >= stop_at for row in event.rows):
                cancel.set()

        if stop_at < plan.chunks:
            with pytest.raises(Cancelled):
                lab.run(plan, watch, cancel)
        else:
            lab.run(plan, events.append, cancel)
        progress = [event for event in events if isinstance(event, LabProgress)]
        return [row.chunks for event in progress for row in event.rows], events

    lab = FolderLab(tmp_path, tmp_path / "records", tmp_path / "out")
    chunks_shown(lab, 1)
    went_on, events = chunks_shown(lab, plan.chunks)
    whole, anew = chunks_shown(
        FolderLab(tmp_path, tmp_path / "fresh", tmp_path / "out"), plan.chunks
    )
    assert min(went_on) > min(whole)
    (resumed,), (fresh,) = (
        event.rows for seen in (events, anew) for event in seen if isinstance(event, LabDone)
    )
    assert resumed == fresh


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
