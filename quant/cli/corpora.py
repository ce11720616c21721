"""`veriloop quant corpora`: the texts to measure on that there are, or that can be had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from quant.corpora.corpora import SHIPPED
from quant.corpora.recipes import fetch, find_recipe, from_hub, read_recipes
from veriloop_tui.core.canonical import to_json

_app = typer.Typer(name="corpora", help="The texts to measure on.", invoke_without_command=True)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(_app)


@_app.callback()
def show(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List the texts that ship with the program, and recipes for well-known ones."""
    if context.invoked_subcommand is not None:
        return
    shipped = [(name, kind, path.stat().st_size) for name, (kind, path) in SHIPPED.items()]
    if as_json:
        typer.echo(json.dumps(to_json({"shipped": shipped, "recipes": read_recipes()})))
        return
    typer.echo("ship with the program (--corpus NAME):")
    for name, kind, size in shipped:
        typer.echo(f"  {name:<18} {kind}, {size / 1000:.0f} kB")
    typer.echo("to be had from the Hugging Face hub (veriloop quant corpora get NAME):")
    for recipe in read_recipes():
        typer.echo(f"  {recipe.name:<18} {recipe.about}")
        typer.echo(f"  {'':<18} {recipe.repo}, {recipe.licence}")


@_app.command()
def get(
    name: Annotated[str, typer.Argument(help="A recipe's name.")],
    out: Annotated[Path | None, typer.Option("--out", help="NAME.txt by default.")] = None,
) -> None:
    """Download the text of a recipe, and say what was got."""
    recipe = find_recipe(name)
    target = out if out is not None else Path(f"{name}.txt")
    source = fetch(recipe, target, from_hub)
    typer.echo(f"wrote {target}, sha256 {source.sha256}")
    typer.echo(f"Its licence: {recipe.licence} (huggingface.co/datasets/{recipe.repo}).")
