"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_ENGINE = "Engine"
_SERVER = "Another server"

HERE = Path()
WorkspaceOption = Annotated[
    Path, typer.Option("--workspace", "-C", help="The folder to work on.", file_okay=False)
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", "-m", help="A GGUF file, NAME[:QUANT], or hf:OWNER/REPO[:QUANT]."),
]
SandboxOption = Annotated[
    str | None, typer.Option("--sandbox", help="Isolation of the commands: best, reduced, none.")
]
DraftOption = Annotated[
    str | None,
    typer.Option(
        "--draft",
        help="A draft head, as for --model; none to use none.",
        rich_help_panel=_ENGINE,
    ),
]
DraftMaxOption = Annotated[
    int | None,
    typer.Option(min=1, max=16, help="Most tokens drafted at once.", rich_help_panel=_ENGINE),
]
SpeculationOption = Annotated[
    str | None,
    typer.Option(help="auto (while it pays), always, off.", rich_help_panel=_ENGINE),
]
LookupOption = Annotated[
    bool | None,
    typer.Option(
        "--lookup/--no-lookup", help="Draft from the prompt itself.", rich_help_panel=_ENGINE
    ),
]
ParallelOption = Annotated[
    int | None,
    typer.Option(min=1, max=64, help="Candidates in one batch.", rich_help_panel=_ENGINE),
]
ContextOption = Annotated[
    int | None, typer.Option("--n-ctx", min=256, help="Context in tokens.", rich_help_panel=_ENGINE)
]
ThreadsOption = Annotated[int | None, typer.Option("--threads", min=1, rich_help_panel=_ENGINE)]
GpuLayersOption = Annotated[
    int | None,
    typer.Option(
        "--gpu-layers", min=-1, help="-1 for all; what fits if left out.", rich_help_panel=_ENGINE
    ),
]
KeyTypeOption = Annotated[
    str | None, typer.Option(help="KV cache: f32, f16, bf16, q8_0 …", rich_help_panel=_ENGINE)
]
ValueTypeOption = Annotated[
    str | None, typer.Option(help="The same for values.", rich_help_panel=_ENGINE)
]
FlashOption = Annotated[
    str | None, typer.Option("--flash-attention", help="auto, on, off.", rich_help_panel=_ENGINE)
]
DevicesOption = Annotated[
    str | None,
    typer.Option(help="llama.cpp's device names, with commas.", rich_help_panel=_ENGINE),
]
SplitModeOption = Annotated[
    str | None, typer.Option(help="layer, row, none.", rich_help_panel=_ENGINE)
]
TensorSplitOption = Annotated[
    str | None, typer.Option(help="Shares of the devices: 3,1.", rich_help_panel=_ENGINE)
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server", help="The URL of an OpenAI-compatible server.", rich_help_panel=_SERVER
    ),
]
ServerModelOption = Annotated[
    str | None, typer.Option(help="What that server calls the model.", rich_help_panel=_SERVER)
]
