"""`veriloop models`: what there is, what fits, fetching and checking it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from veriloop_tui.cli.output import JsonOption, cancel_on_interrupt, say, say_json
from veriloop_tui.core.excerpt import one_line
from veriloop_tui.errors import UsageError
from veriloop_tui.registry import ModelSpec, RepoFile
from veriloop_tui.wiring import models as wired

app = typer.Typer(name="models", help="Models: what there is, what fits here, fetching them.")

RefArgument = Annotated[str, typer.Argument(metavar="REF", help="NAME[:QUANT] or hf:OWNER/REPO.")]


@app.command("list")
def list_models(as_json: JsonOption = False) -> None:
    """List the models that are known by name, and what of them is on this disk."""
    found = wired.known()
    if as_json:
        say_json(found)
        return
    table = _table("name", "memory", "parameters", "kind", "quant", "here")
    for one in sorted(found, key=lambda known: known.memory_gb or 0):
        memory = f"{one.memory_gb} GB" if one.memory_gb else "any"
        here = ", ".join(one.here) or "-"
        table.add_row(one.name, memory, one.parameters, one.kind, one.default_quant, here)
    _print(table)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A name that `models list` shows.")],
    as_json: JsonOption = False,
) -> None:
    """Show all that is known of one model."""
    spec = wired.details(name)
    if as_json:
        say_json({**_fields(spec), "quants": {k: v.model_dump() for k, v in spec.quants.items()}})
        return
    for key, value in _fields(spec).items():
        say(f"{key:<17} {value}")
    for quant, facts in spec.quants.items():
        size = f"{facts.gib} GiB" if facts.gib is not None else "size not stated"
        bpw = f", {facts.bpw} BPW" if facts.bpw is not None else ""
        say(f"  {size}{bpw}, named {quant}{f' ({facts.note})' if facts.note else ''}")


@app.command()
def files(ref: RefArgument, as_json: JsonOption = False) -> None:
    """List what a repository on the hub offers: size first, since names promise little."""
    found = wired.files(ref)
    if as_json:
        say_json(found)
        return
    table = _table("size", "named", "what", "files", "here")
    for one in found:
        what = "draft head" if one.draft else "model"
        shards = one.names[0] if len(one.names) == 1 else f"{len(one.names)} shards"
        shards += "" if one.whole else ", incomplete"
        table.add_row(_size(one.size), one.quant, what, one_line(shards, 100), "yes" * one.here)
    _print(table)


@app.command()
def pull(
    ref: RefArgument,
    draft: Annotated[bool, typer.Option("--draft", help="Its draft head as well.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch a model; what an interrupted try has fetched is kept."""
    what = wired.wanted(ref, draft=draft)
    if not as_json:
        for file in what.files:
            say(f"{_size(file.size):>10}  {one_line(file.name, 200)}")
        say(f"{_size(what.missing)} of {_size(what.size)} to fetch, {_size(what.free)} free.")
    if what.missing and not yes:
        if as_json or not sys.stdin.isatty():
            raise UsageError("There is no terminal to ask on; pass --yes to fetch it.")
        if not typer.confirm("Fetch it?", default=True):
            raise typer.Exit(1)
    with cancel_on_interrupt() as cancel, _bars(what.files, as_json) as advance:
        paths = wired.pull(what, advance, cancel.is_set)
    if as_json:
        say_json([str(path) for path in paths])
    else:
        for path in paths:
            say(f"checked  {path}")


@app.command()
def rm(
    ref: RefArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a model's files from this disk."""
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("There is no terminal to ask on; pass --yes to delete it.")
        if not typer.confirm(f"Delete {ref} from this disk?"):
            raise typer.Exit(1)
    say(f"{_size(wired.remove(ref))} are free again.")


@app.command()
def verify(ref: RefArgument, as_json: JsonOption = False) -> None:
    """Compare a model's files with the sha256 that the hub publishes. Exit 1 if one differs."""
    found = wired.verify(ref)
    if as_json:
        say_json(found)
    else:
        for one in found:
            say(f"{'ok  ' if one.ok else 'BAD '} {one_line(one.name, 200)}  {one.problem}".rstrip())
    raise typer.Exit(0 if all(one.ok for one in found) else 1)


@contextmanager
def _bars(files: tuple[RepoFile, ...], quiet: bool) -> Iterator[Callable[[RepoFile, int], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
        tasks = {
            file.name: progress.add_task(one_line(file.name, 60), total=file.size) for file in files
        }
        yield lambda file, done: progress.update(tasks[file.name], completed=done)


def _fields(spec: ModelSpec) -> dict[str, str | int | None]:
    return {
        "name": spec.name,
        "title": spec.title,
        "parameters": spec.parameters,
        "kind": spec.kind,
        "base": spec.base,
        "licence": spec.licence,
        "source": f"hf:{spec.repo}" if spec.repo else spec.package,
        "weights": spec.weights,
        "for memory of": f"{spec.memory_gb} GB" if spec.memory_gb else "any",
        "native context": spec.native_context,
        "verified context": spec.verified_context,
        "default quant": spec.default_quant,
        "draft heads": ", ".join(spec.drafts),
    }


def _size(count: int) -> str:
    if count >= 1 << 30:
        return f"{count / 2**30:.2f} GiB"
    return f"{count / 2**20:.1f} MiB"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def _print(table: Table) -> None:
    Console(file=sys.stdout, markup=False, highlight=False).print(table)
