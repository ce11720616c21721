"""`veriloop quant report`: pages, tables and plots of what was measured before."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from quant.report.data import Report
from quant.report.json_file import load
from quant.report.pages import write_report
from quant.tasks.record import read_runs
from quant.tasks.tasks import ModelTasks, summarise
from veriloop_tui.errors import UsageError

_BOOTSTRAP_SEED = 20_240_301


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(name="report")(run)


def run(
    losses: Annotated[list[Path], typer.Argument(help="JSON files of `quant compare`.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the files.")],
    tasks: Annotated[
        Path | None, typer.Option("--tasks", help="Runs of `quant tasks`, to stand beside.")
    ] = None,
    title: Annotated[str, typer.Option(help="The first file's by default.")] = "",
) -> None:
    """Write HTML, Markdown, CSV and plots of measured losses. Each file stays its own table."""
    reports = [load(path) for path in losses]
    joined = replace(
        reports[0],
        title=title or reports[0].title,
        comparisons=tuple(one for report in reports for one in report.comparisons),
        notices=tuple(dict.fromkeys(n for report in reports for n in report.notices)),
    )
    if tasks is not None:
        joined = replace(joined, tasks=_tasks(tasks, joined))
    page, *others = write_report(joined, out)
    typer.echo(f"wrote {page}")
    typer.echo(f"and {len(others)} more files beside it")


def _tasks(path: Path, report: Report) -> tuple[ModelTasks, ...]:
    """The runs with the commonest settings: others cannot stand in the same table."""
    runs = tuple(read_runs(path))
    if not runs or not report.comparisons:
        raise UsageError(f"{path} holds no runs; `veriloop quant tasks` makes them.")
    ((settings, _),) = Counter(run.settings for run in runs).most_common(1)
    alike = [run for run in runs if run.settings == settings]
    random = np.random.default_rng(_BOOTSTRAP_SEED)
    return summarise(alike, report.comparisons[0].base_key, random)
