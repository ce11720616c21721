"""Studies small enough for tests: tiny random models, few tokens, a folder of their own."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from quant.report.data import Report
from quant.running.layout import Room
from quant.study.run import Told, run_study
from quant.study.study import Axes, Study
from quant.study.surroundings import Surroundings
from veriloop_tui.core.ports import Cancel

PLENTY = 1 << 40


def around(folder: Path, memory: int = PLENTY, disk: int = PLENTY) -> Surroundings:
    """Surroundings with records in `folder` and so many bytes free."""
    records = folder / "records"
    records.mkdir(parents=True, exist_ok=True)
    return Surroundings(
        records=records,
        room=lambda _backend: Room(memory, memory, False, str(records), disk),
        now=lambda: 0.0,
        threads=2,
        created="2026-12-01",
        program="veriloop test",
    )


def study(folder: Path, base: Path, *quants: Path, words: int = 60) -> Study:
    """A study at 32 tokens per chunk and two chunks at a time, on a text of so many words."""
    text = folder / "text.txt"
    text.write_text("A few words that a model reads. " * (words // 7 + 1), "utf-8")
    return Study(
        base=base,
        quants=quants,
        corpora=(str(text),),
        axes=Axes(n_ctx=(32,)),
        n_batch=64,
        n_ubatch=64,
        chunks=5,
        speeds=False,
    )


def _ignore(_told: Told) -> None:
    pass


def run(
    wanted: Study,
    surroundings: Surroundings,
    watch: Callable[[Told], None] = _ignore,
    cancel: Cancel | None = None,
) -> Report:
    """The report of a study."""
    return run_study(wanted, surroundings, watch, cancel or threading.Event())


def numbers(report: Report) -> list[object]:
    """All that was measured: everything but when."""
    return [replace(one, settings=()) for one in report.comparisons]
