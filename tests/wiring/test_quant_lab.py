import threading
from pathlib import Path

from tests.quant.files import split, write_base
from tests.scripted_gguf import write_random_gguf
from veriloop_tui.core.quant_lab import LabBegun, LabDone, LabEvent, LabPlan, LabProgress
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
