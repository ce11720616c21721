"""What the process of a model is told, and what it answers: lines of JSON, both ways.

Large things go through shared memory: for each stream a region that holds the packed rows of one
step and the losses that were found with them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from quant.losses.scoring import Packed, packed_width
from quant.losses.statistics import FIELDS, Values
from veriloop_tui.engine.settings import FlashAttention, KVType


@dataclass(frozen=True, slots=True)
class Load:
    """The model to load. `gpu_layers` is −1 for all; `shared` an open file of shared memory."""

    model: str
    gpu_layers: int
    shared: int


@dataclass(frozen=True, slots=True)
class Context:
    """What one stream decodes in: sizes in tokens, how keys and values are kept."""

    n_ctx: int
    n_ubatch: int
    sequences: int
    outputs: int
    threads: int
    type_k: KVType = "f16"
    type_v: KVType = "f16"
    flash_attention: FlashAttention = "auto"


@dataclass(frozen=True, slots=True)
class Open:
    """Make the contexts of so many streams; the regions of shared memory fit `rows` of a step."""

    streams: int
    rows: int
    vocabulary: int
    context: Context


@dataclass(frozen=True, slots=True)
class Close:
    """Free all contexts; the model stays."""


@dataclass(frozen=True, slots=True)
class Run:
    """Decode one step of a group in a stream, and do something with its logits.

    `tokens` has one list per sequence, at positions from `start`; `outputs` are the last positions
    of each whose logits are asked for, `targets` the tokens after the first of those. `pack` writes
    the rows to shared memory and scores them against themselves; `score` reads them there. The
    first step of a group clears what the stream held.
    """

    stream: int
    clear: bool
    start: int
    tokens: list[list[int]]
    outputs: int
    targets: list[list[int]]
    work: Literal["pack", "score"]
    floor: float
    threads: int


@dataclass(frozen=True, slots=True)
class Speed:
    """Measure the speeds of reading and of writing so many tokens, several times."""

    prompt: int
    generated: int
    repeats: int
    context: Context


Order = Open | Close | Run | Speed
_ORDERS: dict[str, type[Order]] = {kind.__name__: kind for kind in (Open, Close, Run, Speed)}


def to_line(order: Order) -> str:
    """An order as one line."""
    return json.dumps([type(order).__name__, asdict(order)])


def from_line(line: str) -> Order:
    """The inverse of `to_line`."""
    name, values = json.loads(line)
    if "context" in values:
        values["context"] = Context(**values["context"])
    return _ORDERS[name](**values)


@dataclass(frozen=True, slots=True)
class Region:
    """Where a stream's packed rows and losses lie in shared memory."""

    rows: int
    vocabulary: int

    @property
    def size(self) -> int:
        """Bytes, a multiple of a page."""
        size = self.rows * (2 * packed_width(self.vocabulary) + 4 * len(FIELDS))
        return -(-size // 4096) * 4096

    def packed(self, memory: Any, stream: int) -> Packed:
        """The packed rows of a stream, without a copy."""
        width = packed_width(self.vocabulary)
        found: Packed = np.frombuffer(
            memory, np.uint16, self.rows * width, stream * self.size
        ).reshape(self.rows, width)
        return found

    def losses(self, memory: Any, stream: int) -> Values:
        """The losses of a stream, one row for each of `FIELDS`, without a copy."""
        start = stream * self.size + 2 * self.rows * packed_width(self.vocabulary)
        count = len(FIELDS) * self.rows
        found: Values = np.frombuffer(memory, np.float32, count, start).reshape(len(FIELDS), -1)
        return found
