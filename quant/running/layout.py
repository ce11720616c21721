"""How a comparison is to be run so that it fits the memory and the disk; found before it starts.

Three ways, all with the same numbers. In *lock-step* all models are loaded and every step goes
through all of them. In *windows* one model is loaded at a time, and the base's packed rows of as
many chunks as fit wait in memory. By *file* they all wait on the disk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from quant.losses.scoring import packed_width
from quant.running.shape import Shape
from veriloop_tui.engine.fit.memory import Plan, compute_size, context_size
from veriloop_tui.engine.gguf.facts import GGUFFacts
from veriloop_tui.engine.settings import KVType
from veriloop_tui.errors import DiskTooSmall, MemoryTooSmall

Mode = Literal["lockstep", "windows", "file"]

# A process with llama.cpp in it, before it loads anything; measured on Linux.
_PROCESS: Final = 60 << 20
# Left free for everything else, and for what the figures miss.
_USABLE: Final = 0.85
# Beyond it, loading the models again and again takes longer than writing rows to a disk.
_MANY_WINDOWS: Final = 8
_F32: Final = 4
_UBATCH: Final = 512


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that may be used: of memory, of the devices that models are loaded to, of the disk.

    `models` is the same as `memory` unless models are loaded to GPUs (`apart`).
    """

    memory: int
    models: int
    apart: bool
    folder: str
    disk: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The way to go: `window` chunks at a time, and about how many bytes of memory and disk."""

    mode: Mode
    streams: int
    window: int
    memory: int
    disk: int


@dataclass(frozen=True, slots=True)
class Runner:
    """A model that is to be run, and how it keeps keys and values."""

    facts: GGUFFacts
    type_k: KVType
    type_v: KVType
    flash: bool


@dataclass(frozen=True, slots=True)
class Need:
    """What decides over the way: the base first in `runners`. `streams` is the most wanted."""

    runners: Sequence[Runner]
    shape: Shape
    chunks: int
    vocabulary: int
    streams: int

    @property
    def chunk_size(self) -> int:
        """Bytes of the base's packed rows of one chunk."""
        return self.shape.rows * 2 * packed_width(self.vocabulary)

    def process(self, runner: Runner, streams: int) -> int:
        """Bytes that one model takes with the contexts of so many streams."""
        return weights(runner.facts) + streams * context(runner, self.shape) + _PROCESS

    def shared(self, streams: int) -> int:
        """Bytes of the packed rows that are being worked on."""
        return streams * self.shape.step_rows * 2 * packed_width(self.vocabulary) + _PROCESS


def weights(facts: GGUFFacts) -> int:
    """Bytes of the weights that are loaded: a draft head is not."""
    return facts.sizes.size - facts.sizes.draft_size


def context(runner: Runner, shape: Shape) -> int:
    """Bytes of one stream's context: keys, values and states, room to compute in, and logits."""
    facts = runner.facts
    plan = Plan(
        n_ctx=shape.sequences * shape.n_ctx,
        gpu_layers=0,
        sequences=shape.sequences,
        rollback=0,
        speculates=False,
        type_k=runner.type_k,
        type_v=runner.type_v,
        flash=runner.flash,
    )
    kept = sum(context_size(block, plan) for block in facts.layers.trunk)
    logits = shape.step_rows * facts.vocabulary_size * _F32
    # They are computed in one place and copied to another.
    compute = max(math.ceil(compute_size(facts, plan) * shape.n_ubatch / _UBATCH), logits)
    return kept + compute + logits


def lay_out(need: Need, room: Room, wanted: Mode | None = None) -> Layout:
    """The way that fits, the wanted one or the best. Raises `MemoryTooSmall`, `DiskTooSmall`."""
    memory, models = int(room.memory * _USABLE), int(room.models * _USABLE)
    least = 0
    for streams in range(need.streams, 0, -1):
        each = [need.process(one, streams) for one in need.runners]
        shared = need.shared(streams)
        if wanted in (None, "lockstep"):
            taken = sum(each) + (0 if room.apart else shared)
            if taken <= models and shared <= memory:
                return Layout("lockstep", streams, need.chunks, sum(each) + shared, 0)
            least = taken
        if wanted == "lockstep":
            continue
        left = memory - shared - (0 if room.apart else max(each))
        if max(each) > models or left < 0:
            least = max(each) + shared
            continue
        if (found := _one_by_one(need, room, wanted, streams, left)) is not None:
            used = max(each) + shared
            kept = found.window * need.chunk_size if found.mode == "windows" else 0
            return Layout(found.mode, streams, found.window, used + kept, found.disk)
        least = max(each) + shared + need.shape.sequences * need.chunk_size
    raise MemoryTooSmall(least, room.models)


def _one_by_one(
    need: Need, room: Room, wanted: Mode | None, streams: int, left: int
) -> Layout | None:
    """Windows that `left` bytes hold, or a file; `None` if neither fits."""
    unit = need.shape.sequences * streams
    window = min(need.chunks, left // need.chunk_size // unit * unit)
    disk = need.chunks * (need.chunk_size + need.shape.n_ctx * 4)
    if wanted == "windows" or (wanted is None and window >= math.ceil(need.chunks / _MANY_WINDOWS)):
        return Layout("windows", streams, window, 0, 0) if window else None
    if disk <= room.disk:
        return Layout("file", streams, need.chunks, 0, disk)
    if wanted == "file":
        raise DiskTooSmall(room.folder, disk, room.disk)
    return Layout("windows", streams, window, 0, 0) if window else None
