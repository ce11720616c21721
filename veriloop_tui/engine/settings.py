"""How an engine loads its models, as its process is told it. Imports nothing heavy."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

KVType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
FlashAttention = Literal["auto", "on", "off"]
SplitMode = Literal["layer", "row", "none"]
# auto: while it pays; always: whatever it costs (for measuring and for proofs); off: never.
Speculation = Literal["auto", "always", "off"]

# Beyond this a draft hardly ever holds to its end, and each token costs a copy of recurrent state.
MAX_DRAFT: Final = 16


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How to load a model.

    `n_ctx` in tokens, `None` for what fits; `threads` `None` for one per physical core;
    `gpu_layers` −1 for all, `None` for what fits; `draft` a file with a draft head; `draft_max`
    the most tokens drafted at once; `parallel` the candidates decoded in one batch, `None` for
    what suits the model; `lookup` whether prompts are searched for drafts; `state_file` where the
    evaluated context is kept between two runs; `devices` by llama.cpp's names, empty for all;
    `tensor_split` the share of each device; `smaller` how many steps below what should fit, after
    memory ran out.
    """

    model: Path
    draft: Path | None = None
    n_ctx: int | None = None
    threads: int | None = None
    gpu_layers: int | None = None
    draft_max: int = 8
    speculation: Speculation = "auto"
    lookup: bool = True
    parallel: int | None = None
    type_k: KVType = "f16"
    type_v: KVType = "f16"
    flash_attention: FlashAttention = "auto"
    devices: tuple[str, ...] = ()
    split_mode: SplitMode = "layer"
    tensor_split: tuple[float, ...] = ()
    state_file: Path | None = None
    smaller: int = 0

    def to_json(self) -> str:
        """The settings as the engine's process reads them."""
        return json.dumps(dataclasses.asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> LoadSettings:
        """The inverse of `to_json`. Raises `ValueError`."""
        values: dict[str, Any] = json.loads(text)
        if not 1 <= values["draft_max"] <= MAX_DRAFT:
            raise ValueError(f"draft_max must be from 1 to {MAX_DRAFT}")
        for name in ("model", "draft", "state_file"):
            if values[name] is not None:
                values[name] = Path(values[name])
        for name in ("devices", "tensor_split"):
            values[name] = tuple(values[name])
        return cls(**values)
