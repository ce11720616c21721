"""`veriloop models inspect` and `veriloop models fit`."""

from __future__ import annotations

from typing import Annotated

import typer

from veriloop_tui.cli.fit_lines import (
    fitted_document,
    fitted_lines,
    inspected_document,
    inspected_lines,
)
from veriloop_tui.cli.options import (
    ContextOption,
    DevicesOption,
    DraftMaxOption,
    DraftOption,
    FlashOption,
    GpuLayersOption,
    KeyTypeOption,
    ParallelOption,
    SpeculationOption,
    SplitModeOption,
    TensorSplitOption,
    ValueTypeOption,
)
from veriloop_tui.cli.output import JsonOption, say, say_json
from veriloop_tui.wiring import Flags
from veriloop_tui.wiring import fit as wired
from veriloop_tui.wiring import inspect as headers

ModelArgument = Annotated[
    str,
    typer.Argument(metavar="REF", help="A GGUF file, NAME[:QUANT], hf:OWNER/REPO[:QUANT] or URL."),
]


def inspect(ref: ModelArgument, as_json: JsonOption = False) -> None:
    """Show what a model's header says; what is not on this disk is not downloaded for it."""
    found = headers.inspect(ref)
    if as_json:
        say_json(inspected_document(found))
        return
    for line in inspected_lines(found):
        say(line)


def fit(
    ref: ModelArgument,
    draft: DraftOption = None,
    draft_max: DraftMaxOption = None,
    speculation: SpeculationOption = None,
    parallel: ParallelOption = None,
    n_ctx: ContextOption = None,
    gpu_layers: GpuLayersOption = None,
    type_k: KeyTypeOption = None,
    type_v: ValueTypeOption = None,
    flash_attention: FlashOption = None,
    devices: DevicesOption = None,
    split_mode: SplitModeOption = None,
    tensor_split: TensorSplitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell whether a model fits this machine, and how it would be loaded. Exit 1 if it does not."""
    flags = Flags(
        draft=draft,
        draft_max=draft_max,
        speculation=speculation,
        parallel=parallel,
        n_ctx=n_ctx,
        gpu_layers=gpu_layers,
        type_k=type_k,
        type_v=type_v,
        flash_attention=flash_attention,
        devices=devices,
        split_mode=split_mode,
        tensor_split=tensor_split,
    )
    found = wired.fit(ref, flags)
    if as_json:
        say_json(fitted_document(found))
    else:
        for line in fitted_lines(found):
            say(line)
    raise typer.Exit(0 if found.fit.fits else 1)
