"""The screen for comparing quants, joined with the study that measures."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from quant.corpora.corpora import SHIPPED
from quant.inspecting.read import ModelFiles, read_model
from quant.report.data import Estimate, Report
from quant.report.json_file import dump
from quant.report.pages import write_report
from quant.report.rank import ranked
from quant.running.machine import cores, room_in
from quant.study.progress import Progress, QuantProgress, told
from quant.study.run import Preflight, Told, run_study
from quant.study.study import Axes, Study
from quant.study.surroundings import Surroundings
from veriloop_tui import __version__
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
)
from veriloop_tui.errors import LibraryMissing, ModelFileInvalid, UsageError


@dataclass(frozen=True, slots=True)
class FolderLab:
    """The models of a folder; measurements go to `records`, reports to `out`."""

    folder: Path
    records: Path
    out: Path

    def files(self) -> tuple[LabFile, ...]:
        """The models that can be read, the largest first. Raises `UsageError`."""
        if not self.folder.is_dir():
            raise UsageError(f"{self.folder} is no folder.")
        models: dict[Path, ModelFiles] = {}
        for path in sorted(self.folder.glob("*.gguf")):
            # What cannot be read, such as half a download, is not offered.
            with suppress(ModelFileInvalid):
                model = read_model(path)
                models.setdefault(model.paths[0], model)
        found = [
            LabFile(str(path), model.name, model.facts.file_size, model.facts.sizes.bpw)
            for path, model in models.items()
            if not model.facts.draft_head_only
        ]
        return tuple(sorted(found, key=lambda file: -file.size))

    def corpora(self) -> tuple[str, ...]:
        """The texts that ship."""
        return tuple(SHIPPED)

    def run(self, plan: LabPlan, told: Callable[[LabEvent], None], cancel: Cancel) -> None:
        """Measure, and write the report."""
        study = Study(
            base=Path(plan.base),
            quants=tuple(map(Path, plan.quants)),
            corpora=(plan.corpus,),
            axes=Axes(n_ctx=(plan.n_ctx,)),
            chunks=plan.chunks,
            speeds=False,
        )
        try:
            self.records.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise UsageError(f"{self.records} cannot be made: {problem.strerror}.") from problem
        around = Surroundings(
            records=self.records,
            room=lambda backend: room_in(self.records, gpu=backend.gpu),
            now=time.monotonic,
            threads=cores(),
            created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            program=f"veriloop {__version__}",
        )
        report = run_study(study, around, lambda news: told(_event(news)), cancel)
        page, *_ = write_report(report, self.out)
        (self.out / "report.json").write_text(dump(report), "utf-8")
        told(LabDone(_rows(report), str(page), report.notices))


def show_lab(folder: Path, records: Path, out: Path) -> None:
    """Open the screen. Raises `UsageError`, `LibraryMissing`."""
    try:
        from veriloop_tui.tui.quant_lab import run_lab
    except ModuleNotFoundError as problem:
        install = "pip install 'veriloop-tui[quant]'"
        raise LibraryMissing(str(problem.name), "the quant lab", install) from None
    run_lab(FolderLab(folder, records, out))


def _event(news: Told) -> LabEvent:
    match news:
        case Preflight():
            memory = f"{news.layout.memory / 2**30:.2f} GiB of memory"
            return LabBegun(f"{news.title}: {news.chunks} chunks, about {memory}")
        case Progress():
            rows = tuple(_row(one) for one in news.quants)
            return LabProgress(news.done, news.of, told(news.seconds_left), rows)


def _row(one: QuantProgress) -> LabRow:
    return LabRow(
        name=one.name,
        size=one.file_size,
        chunks=one.chunks,
        kld=_value(one.kld),
        ppl_ratio=_value(one.ppl_ratio),
        same_top=_value(one.same_top),
        problem=one.problem,
    )


def _rows(report: Report) -> tuple[LabRow, ...]:
    (found,) = report.comparisons
    rows = [
        LabRow(
            name=row.quant.name,
            size=row.quant.file_size,
            chunks=found.chunks,
            kld=_value(row.quant.kld),
            ppl_ratio=_value(row.quant.ppl_ratio),
            same_top=_value(row.quant.same_top),
            place=row.place,
            on_front=row.on_front,
        )
        for row in ranked(found)
    ]
    stopped = [
        LabRow(one.name, one.file_size, 0, None, None, None, one.problem) for one in found.stopped
    ]
    return (*rows, *stopped)


def _value(estimate: Estimate | None) -> LabValue | None:
    return None if estimate is None else LabValue(estimate.value, estimate.spread)
