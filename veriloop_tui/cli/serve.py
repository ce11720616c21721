"""`veriloop serve`: the engine by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veriloop_tui import wiring
from veriloop_tui.cli.options import (
    ContextOption,
    DevicesOption,
    DraftMaxOption,
    DraftOption,
    FlashOption,
    GpuLayersOption,
    KeyTypeOption,
    LookupOption,
    ParallelOption,
    SpeculationOption,
    SplitModeOption,
    TensorSplitOption,
    ThreadsOption,
    ValueTypeOption,
)
from veriloop_tui.errors import UsageError


def serve(
    model: Annotated[str, typer.Option("--model", "-m", help="As for `run`.")],
    socket: Annotated[Path | None, typer.Option(help="Listen on a Unix socket.")] = None,
    host: Annotated[str, typer.Option(help="An address of this machine.")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 picks one.")] = None,
    api_key: Annotated[
        str, typer.Option(envvar="VERILOOP_API_KEY", help="Clients must send it; for a port.")
    ] = "",
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
) -> None:
    """Run the engine by itself, for any OpenAI-compatible client."""
    if (socket is None) == (port is None):
        raise UsageError("Say where to listen: either --socket PATH or --port N.")
    flags = wiring.Flags(
        model=model,
        draft=draft,
        draft_max=draft_max,
        speculation=speculation,
        lookup=lookup,
        parallel=parallel,
        n_ctx=n_ctx,
        threads=threads,
        gpu_layers=gpu_layers,
        type_k=type_k,
        type_v=type_v,
        flash_attention=flash_attention,
        devices=devices,
        split_mode=split_mode,
        tensor_split=tensor_split,
    )
    wiring.serve(flags, socket, host, port or 0, api_key)
