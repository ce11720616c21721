"""`veriloop quant tasks`: does the lost KLD cost work?

The package itself knows only the engine, so whoever joins the parts hands in how tasks are run.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Annotated, assert_never

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from quant.tasks.record import TaskRun
from quant.tasks.study import (
    RunStudy,
    StudyBegun,
    StudyEvent,
    TaskBegun,
    TaskEnded,
    TaskNotice,
    TaskStudy,
)
from quant.tasks.suite import SHIPPED_SUITE, choose, read_suite
from quant.tasks.tasks import Interval, ModelTasks, summarise
from veriloop_tui.core.canonical import to_json
from veriloop_tui.core.excerpt import one_line
from veriloop_tui.engine.gguf.facts import read_facts
from veriloop_tui.errors import UsageError

_NAME_LENGTH = 60
_BOOTSTRAP_SEED = 20_240_301


def register(app: typer.Typer, run_study: RunStudy) -> None:
    """Add the command to `app`; `run_study` runs the tasks."""

    def run(
        base: Annotated[Path, typer.Argument(help="The model that the quants are held against.")],
        quants: Annotated[list[Path] | None, typer.Argument(help="Quants of it.")] = None,
        seeds: Annotated[int, typer.Option(min=1, help="So many runs of each task.")] = 1,
        task: Annotated[
            list[str] | None, typer.Option("--task", help="Only this one; repeatable.")
        ] = None,
        suite: Annotated[
            Path | None, typer.Option(help="A folder of tasks; ours by default.")
        ] = None,
        attempts: Annotated[int, typer.Option(min=1, help="At most, in each run.")] = 16,
        results: Annotated[
            Path, typer.Option(help="The runs so far; the study goes on from it.")
        ] = Path("quant-tasks.jsonl"),
        n_ctx: Annotated[int, typer.Option(min=256, help="Context in tokens.")] = 4096,
        threads: Annotated[int | None, typer.Option(min=1)] = None,
        gpu_layers: Annotated[int | None, typer.Option(min=-1, help="-1 for all.")] = None,
        temperature: Annotated[float | None, typer.Option(min=0.0, max=5.0)] = None,
        edit_format: Annotated[str, typer.Option(help="As for `run`.")] = "auto",
        sandbox: Annotated[str, typer.Option(help="best, reduced or none.")] = "best",
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
    ) -> None:
        """Run the same verified repair tasks with each quant, and say what the loss costs."""
        models = (base, *(quants or ()))
        if len({model.resolve() for model in models}) != len(models):
            raise UsageError("A model is named twice; name each one once.")
        study = TaskStudy(
            models=models,
            tasks=choose(read_suite(suite or SHIPPED_SUITE), tuple(task or ())),
            seeds=tuple(range(1, seeds + 1)),
            results=results,
            attempts=attempts,
            n_ctx=n_ctx,
            threads=threads,
            gpu_layers=gpu_layers,
            temperature=temperature,
            edit_format=edit_format,
            sandbox=sandbox,
        )
        _follow(study, run_study, as_json)

    app.command(name="tasks")(run)


def _follow(study: TaskStudy, run_study: RunStudy, as_json: bool) -> None:
    # The caller's Ctrl-C comes as KeyboardInterrupt, and ends the engine on its way out.
    events = run_study(study, threading.Event())
    begun = next(events)
    assert isinstance(begun, StudyBegun)
    runs: list[TaskRun] = []
    if as_json:
        for event in events:
            if isinstance(event, TaskEnded):
                runs.append(event.run)
            typer.echo(json.dumps({"type": _type(event), **_fields(event)}))
    else:
        console = Console(highlight=False)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}", markup=False),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console, transient=True) as bars:
            bar = bars.add_task("", total=begun.of)
            for event in events:
                _show(event, console, bars, bar, runs)
    rows = summarise(runs, begun.digests[0], np.random.default_rng(_BOOTSTRAP_SEED))
    sizes = dict(
        zip(begun.digests, (read_facts(model).file_size for model in study.models), strict=True)
    )
    if as_json:
        typer.echo(json.dumps({"type": "summary", "models": to_json(rows)}))
    else:
        Console(highlight=False).print(task_table(rows, sizes))


def task_table(rows: tuple[ModelTasks, ...], sizes: dict[str, int]) -> Table:
    """The base, then the quants from the largest to the smallest file; a name is a label only.

    `sizes` are bytes by the model's digest.
    """
    table = Table("MiB", "solved", "%", "% vs base", "attempts", "tokens", "name", padding=(0, 0))
    table.caption = "attempts and tokens per commit; [95 % intervals], whole tasks drawn"
    for column in table.columns[:-1]:
        column.justify = "right"
    table.columns[-1].overflow = "fold"
    base, *quants = rows
    for row in (base, *sorted(quants, key=lambda row: -sizes.get(row.model_digest, 0))):
        table.add_row(
            f"{sizes.get(row.model_digest, 0) / 2**20:.1f}",
            f"{row.solved}/{row.runs}",
            _percent(row.solved_share, ""),
            _against(row),
            _cost(row.attempts_per_commit, ".1f"),
            _cost(row.tokens_per_commit, ".0f"),
            Text(one_line(row.model, _NAME_LENGTH)),
        )
    return table


def _against(row: ModelTasks) -> str:
    found = row.retention
    if found is None:
        return ""
    return _percent(found.difference, "+") + (" tie" if found.tie else "")


def _percent(share: Interval, sign: str) -> str:
    value, low, high = (f"{100 * part:{sign}.0f}" for part in (share.value, share.low, share.high))
    return f"{value} \\[{low}, {high}]"


def _cost(cost: Interval | None, form: str) -> str:
    if cost is None:
        return "no commit"
    high = "∞" if cost.high == float("inf") else f"{cost.high:{form}}"
    return f"{cost.value:{form}} \\[{cost.low:{form}}, {high}]"


def _show(
    event: StudyEvent, console: Console, bars: Progress, bar: TaskID, runs: list[TaskRun]
) -> None:
    match event:
        case TaskBegun(model=model, task=task, index=index):
            shown = f"{one_line(model, _NAME_LENGTH)}: {one_line(task, _NAME_LENGTH)}"
            bars.update(bar, description=shown, completed=index - 1)
        case TaskEnded(run=run):
            runs.append(run)
        case TaskNotice(text=text):
            console.print(Text(f"notice  {one_line(text, 300)}"), soft_wrap=True)
        case StudyBegun():
            pass
        case _:
            assert_never(event)


def _type(event: StudyEvent) -> str:
    match event:
        case StudyBegun():
            return "study-begun"
        case TaskBegun():
            return "task-begun"
        case TaskEnded():
            return "task-ended"
        case TaskNotice():
            return "notice"
        case _:
            assert_never(event)


def _fields(event: StudyEvent) -> dict[str, object]:
    fields = to_json(event)
    assert isinstance(fields, dict)
    return dict(fields)
