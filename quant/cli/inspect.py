"""`veriloop quant inspect`: what each file's bytes are spent on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from quant.inspecting.diff import Difference, Differing, block_ranges, difference
from quant.inspecting.inspect import Inspection, inspect
from quant.inspecting.name import broken_promises
from quant.inspecting.read import ModelFiles, read_model
from veriloop_tui.core.canonical import to_json
from veriloop_tui.core.excerpt import one_line

_NAME_LENGTH = 60
_SHOWN_NAMES = 8


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(name="inspect")(show)


def show(
    files: Annotated[list[Path], typer.Argument(help="GGUF files; of shards, any one.")],
    base: Annotated[
        Path | None, typer.Option("--base", help="Whose weights the trunk's BPW counts.")
    ] = None,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Show sizes, bits per weight and tensor types; of two files, what differs between them."""
    of = read_model(base) if base is not None else None
    models = sorted((read_model(path) for path in files), key=lambda model: model.facts.file_size)
    found = [(model, inspect(model, of)) for model in models]
    compared = difference(models[0], models[1]) if len(models) == 2 else None
    if as_json:
        document = {
            "files": [_document(model, one, tensors) for model, one in found],
            "difference": compared,
        }
        typer.echo(json.dumps(to_json(document)))
        return
    console = Console(highlight=False)
    console.print(_sizes([one for _, one in found]))
    for model, one in found:
        console.print(_types(one))
        for promise in broken_promises(one):
            console.print(Text(f"notice  {_name(one.name)}: {promise}"), soft_wrap=True)
        if tensors:
            console.print(_tensors(model))
    if compared is not None:
        _print_difference(console, _name(found[0][1].name), _name(found[1][1].name), compared)


def _document(model: ModelFiles, found: Inspection, tensors: bool) -> dict[str, object]:
    document: dict[str, object] = {
        "inspection": found,
        "notices": broken_promises(found),
        "files": [str(path) for path in model.paths],
    }
    return document | ({"tensors": model.tensors} if tensors else {})


def _sizes(found: list[Inspection]) -> Table:
    """Smallest first; a name stands last, since it is a label only."""
    table = Table("MiB", "BPW", "trunk", "body", "MTP MiB", "active MiB", "experts", "name")
    for column in table.columns[:-1]:
        column.justify = "right"
    table.columns[-1].overflow = "fold"
    for one in found:
        sizes = one.sizes
        experts = f"{sizes.experts_used} of {sizes.experts}" if sizes.experts else ""
        table.add_row(
            f"{one.file_size / 2**20:.1f}",
            f"{sizes.bpw:.3f}",
            f"{one.bpw_trunk:.3f}",
            f"{sizes.bpw_body:.3f}",
            f"{sizes.draft_size / 2**20:.1f}" if sizes.draft_size else "",
            f"{sizes.active_size / 2**20:.1f}",
            experts,
            Text(_name(one.name)),
        )
    return table


def _types(found: Inspection) -> Table:
    table = Table("type", "tensors", "weights", "MiB", "share", title=Text(_name(found.name)))
    for column in table.columns[1:]:
        column.justify = "right"
    for share in found.sizes.types:
        table.add_row(
            share.type_name,
            str(share.tensors),
            f"{share.elements:,}",
            f"{share.size / 2**20:.1f}",
            f"{share.size / found.sizes.size:.1%}",
        )
    return table


def _tensors(model: ModelFiles) -> Table:
    table = Table("tensor", "shape", "type", "bytes")
    for tensor in model.tensors:
        shape = " x ".join(str(width) for width in tensor.shape)
        table.add_row(Text(_name(tensor.name)), shape, tensor.type_name, f"{tensor.size:,}")
    return table


def _print_difference(console: Console, first: str, second: str, found: Difference) -> None:
    for higher, kinds in ((first, found.higher_first), (second, found.higher_second)):
        if kinds:
            console.print(_kinds(kinds, f"kept with more bits by {higher}"))
    console.print(Text(f"{found.same} tensors have the same type in both."))
    for what, names in (
        (f"only in {first}", found.only_first),
        (f"only in {second}", found.only_second),
        ("of another shape", found.reshaped),
    ):
        if names:
            shown = ", ".join(_name(name) for name in names[:_SHOWN_NAMES])
            more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
            console.print(Text(f"{what}: {shown}{more}"))


def _kinds(kinds: tuple[Differing, ...], title: str) -> Table:
    table = Table("tensors", "blocks", "smaller file", "larger file", "MiB apart")
    table.title = Text(title)
    table.columns[0].overflow = "fold"
    table.columns[-1].justify = "right"
    for kind in kinds:
        apart = (kind.first_size - kind.second_size) / 2**20
        table.add_row(
            Text(_name(kind.pattern)),
            block_ranges(kind.blocks),
            kind.first_type,
            kind.second_type,
            f"{apart:+.2f}",
        )
    return table


def _name(text: str) -> str:
    return one_line(text, _NAME_LENGTH)
