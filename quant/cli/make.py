"""`veriloop quant make`: quants of a base, with the sizes known before the work begins."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Annotated, assert_never

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from quant.making.make import Kept, Made, Working, make
from quant.making.plan import Existing, Plan, plan
from quant.making.target import Recipe, parse_override, parse_targets, tensor_type
from veriloop_tui.core.canonical import to_json
from veriloop_tui.core.excerpt import one_line
from veriloop_tui.core.ports import Cancel
from veriloop_tui.errors import UsageError

_NAME_LENGTH = 80
_EXISTING: dict[str, Existing] = {"refuse": "refuse", "keep": "keep", "replace": "replace"}


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(name="make")(run)


def run(
    base: Annotated[Path, typer.Argument(help="The F16, BF16 or F32 file; of shards, any one.")],
    types: Annotated[str, typer.Option("--types", help="Such as Q8_0,Q6_K,Q4_K_M.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the quants; the base's by default.")
    ] = None,
    imatrix: Annotated[
        Path | None, typer.Option("--imatrix", help="Importance matrix, GGUF or older.")
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("--override", help="PATTERN=TYPE for tensors whose name matches; repeatable."),
    ] = None,
    output_type: Annotated[str, typer.Option(help="Type of the output tensor.")] = "",
    embedding_type: Annotated[str, typer.Option(help="Type of the token embeddings.")] = "",
    pure: Annotated[bool, typer.Option("--pure", help="One type for all, no mixtures.")] = False,
    requantise: Annotated[
        bool, typer.Option("--requantise", help="Allow a base that is quantised itself.")
    ] = False,
    existing: Annotated[
        str, typer.Option(help="Files that are there already: refuse, keep or replace.")
    ] = "refuse",
    threads: Annotated[int, typer.Option(min=0, help="0 for one per core.")] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how large the quants would be.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """Make quants of a base. Each appears under its name whole and checked, or not at all."""
    if existing not in _EXISTING:
        raise UsageError(f"--existing {existing}: use one of {', '.join(_EXISTING)}.")
    recipe = Recipe(
        overrides=tuple(parse_override(text) for text in override or ()),
        imatrix=imatrix,
        output_type=tensor_type(output_type) if output_type else "",
        embedding_type=tensor_type(embedding_type) if embedding_type else "",
        pure=pure,
        requantise=requantise,
        threads=threads,
    )
    folder = out if out is not None else base.parent
    # The caller's Ctrl-C comes as KeyboardInterrupt, and ends the worker on its way out.
    cancel = threading.Event()
    planned = plan(base, folder, parse_targets(types), recipe, _EXISTING[existing], cancel)
    _print_plan(planned, as_json)
    if dry_run:
        return
    if as_json:
        for progress in make(planned, cancel):
            typer.echo(json.dumps({"type": type(progress).__name__.lower(), **_fields(progress)}))
            sys.stdout.flush()
    else:
        _show(planned, cancel)


def _print_plan(planned: Plan, as_json: bool) -> None:
    if as_json:
        quants = [
            {
                "label": one.target.label,
                "path": one.path,
                "predicted": one.predicted,
                "fallbacks": one.fallbacks,
                "kept": one.kept,
            }
            for one in planned.quants
        ]
        document = {"type": "plan", "quants": quants, "notices": planned.notices}
        typer.echo(json.dumps(document, default=str))
        return
    for notice in planned.notices:
        typer.echo(f"notice     {one_line(notice, 300)}")
    for one in planned.quants:
        kept = ", is there already and is kept" if one.kept else ""
        name = one_line(one.path.name, _NAME_LENGTH)
        typer.echo(f"planned    {one.predicted / 2**20:10.1f} MiB  {name}{kept}")
        if one.fallbacks:
            typer.echo(
                f"notice     {len(one.fallbacks)} tensors have rows that do not fit "
                f"{one.target.label}, so they get a larger type"
            )


def _show(planned: Plan, cancel: Cancel) -> None:
    console = Console(highlight=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        bar: TaskID | None = None
        for progress in make(planned, cancel):
            match progress:
                case Working(path=path, index=index, of=of):
                    if bar is None:
                        bar = bars.add_task(one_line(path.name, _NAME_LENGTH), total=of)
                    bars.update(bar, completed=index - 1)
                case Made(path=path, size=size, unweighted=unweighted):
                    if bar is not None:
                        bars.remove_task(bar)
                        bar = None
                    name = one_line(path.name, _NAME_LENGTH)
                    console.print(Text(f"made       {size / 2**20:10.1f} MiB  {name}"))
                    if unweighted:
                        told = f"the importance matrix does not know {len(unweighted)} tensors"
                        console.print(Text(f"notice     {told}"), soft_wrap=True)
                case Kept(path=path):
                    console.print(Text(f"kept       {one_line(path.name, _NAME_LENGTH)}"))
                case _:
                    assert_never(progress)


def _fields(progress: Working | Made | Kept) -> dict[str, object]:
    match progress:
        case Working(path=path, index=index, of=of, name=name):
            return {"path": str(path), "index": index, "of": of, "tensor": name}
        case Made(path=path, label=label, size=size, unweighted=unweighted):
            fields = {"path": str(path), "label": label, "size": size}
            return fields | {"unweighted": to_json(unweighted)}
        case Kept(path=path):
            return {"path": str(path)}
        case _:
            assert_never(progress)
