"""`veriloop run` and `veriloop demo`: events as lines, and the question before a commit."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from veriloop_tui import wiring
from veriloop_tui.cli import lines
from veriloop_tui.cli.options import (
    HERE,
    ContextOption,
    DevicesOption,
    DraftMaxOption,
    DraftOption,
    FlashOption,
    GpuLayersOption,
    KeyTypeOption,
    LookupOption,
    ModelOption,
    ParallelOption,
    SandboxOption,
    ServerModelOption,
    ServerOption,
    SpeculationOption,
    SplitModeOption,
    TensorSplitOption,
    ThreadsOption,
    ValueTypeOption,
    WorkspaceOption,
)
from veriloop_tui.cli.output import JsonOption, cancel_on_interrupt, say
from veriloop_tui.core.event import Event, RunEnded, event_json
from veriloop_tui.core.excerpt import sanitise
from veriloop_tui.errors import UsageError


def run(
    task: Annotated[str, typer.Argument(help="What to do, in your own words.")],
    workspace: WorkspaceOption = HERE,
    model: ModelOption = None,
    attempts: Annotated[int | None, typer.Option(min=1, help="At most this many.")] = None,
    auto: Annotated[bool, typer.Option("--auto", help="Commit without asking.")] = False,
    seed: Annotated[int | None, typer.Option(help="Of the run; random if not given.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0.0, max=5.0)] = None,
    edit_format: Annotated[
        str | None, typer.Option(help="auto, search-replace, function or file.")
    ] = None,
    sandbox: SandboxOption = None,
    draft: DraftOption = None,
    draft_max: DraftMaxOption = None,
    speculation: SpeculationOption = None,
    lookup: LookupOption = None,
    parallel: ParallelOption = None,
    n_ctx: ContextOption = None,
    threads: ThreadsOption = None,
    gpu_layers: GpuLayersOption = None,
    type_k: KeyTypeOption = None,
    type_v: ValueTypeOption = None,
    flash_attention: FlashOption = None,
    devices: DevicesOption = None,
    split_mode: SplitModeOption = None,
    tensor_split: TensorSplitOption = None,
    server: ServerOption = None,
    server_model: ServerModelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let the model propose edits; commit those that the rule allows."""
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not as_json
    if not auto and not asks:
        raise UsageError("There is no terminal to approve commits on; pass --auto.")
    flags = wiring.Flags(
        model=model,
        draft=draft,
        draft_max=draft_max,
        speculation=speculation,
        lookup=lookup,
        parallel=parallel,
        type_k=type_k,
        type_v=type_v,
        flash_attention=flash_attention,
        devices=devices,
        split_mode=split_mode,
        tensor_split=tensor_split,
        server=server,
        server_model=server_model,
        attempts=attempts,
        temperature=temperature,
        edit_format=edit_format,
        sandbox=sandbox,
        n_ctx=n_ctx,
        threads=threads,
        gpu_layers=gpu_layers,
    )
    approve = None if auto else ask_for_approval
    with cancel_on_interrupt() as cancel:
        events = wiring.run(workspace, task, flags, seed, approve, cancel)
        raise typer.Exit(show_run(events, as_json))


def demo(
    folder: Annotated[Path | None, typer.Argument(help="A new or empty folder.")] = None,
    headless: Annotated[bool, typer.Option("--headless", help="Plain lines, no screen.")] = False,
    model: ModelOption = None,
    server: ServerOption = None,
    server_model: ServerModelOption = None,
    seed: Annotated[int | None, typer.Option(help="Random if not given.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Watch the embedded model repair a small broken project under the commit rule."""
    screen = sys.stdout.isatty() and sys.stdin.isatty() and not headless and not as_json
    flags = wiring.Flags(model=model, server=server, server_model=server_model)
    with wiring.demo_workspace(folder) as workspace:
        if not as_json and not screen:
            say(f"workspace  {workspace}")
        if screen:
            ended = wiring.show_demo(workspace, flags, seed)
            raise typer.Exit(lines.EXIT_CODES[ended.outcome] if ended else 130)
        with cancel_on_interrupt() as cancel:
            code = show_run(wiring.run_demo(workspace, flags, seed, cancel), as_json)
        damage = wiring.fsck(workspace, "")
        if not as_json:
            say(f"fsck       {'clean' if not damage else 'damaged'}")
    raise typer.Exit(1 if damage else code)


def show_run(events: Iterator[Event], as_json: bool) -> int:
    """Print a run as it happens; the exit code that its end stands for."""
    code = 1
    for event in events:
        show_event(event, as_json)
        if isinstance(event, RunEnded):
            code = lines.EXIT_CODES[event.outcome]
    return code


def show_event(event: Event, as_json: bool) -> None:
    """Print one event, at once."""
    if as_json:
        say(json.dumps(event_json(event)))
    else:
        for line in lines.lines(event):
            say(line)
    sys.stdout.flush()


def ask_for_approval(diff: str, warnings: tuple[str, ...]) -> tuple[bool, str]:
    """Show the verified change and ask; a refusal may carry a reason."""
    say(sanitise(diff))
    if typer.confirm("Commit this change?"):
        return True, ""
    return False, typer.prompt("Why not? (may be empty)", default="", show_default=False)
