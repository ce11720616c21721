"""What a study is to measure: a base, its quants, texts, and settings that are varied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from quant.losses.scoring import FLOOR
from quant.running.layout import Mode
from quant.running.shape import Shape
from veriloop_tui.engine.settings import FlashAttention, KVType

N_BATCH = 2048
N_UBATCH = 512


@dataclass(frozen=True, slots=True)
class Axes:
    """What is varied; every combination is measured. Types of keys and values go in pairs."""

    n_ctx: tuple[int, ...] = (512,)
    kv: tuple[tuple[KVType, KVType], ...] = (("f16", "f16"),)
    flash_attention: tuple[FlashAttention, ...] = ("auto",)
    threads: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Study:
    """The whole. `chunks` at most of each text, 0 for all; `streams`, `mode` and threads `None` or
    empty for what suits the machine; `logits` a file of base logits, to be read or written."""

    base: Path
    quants: tuple[Path, ...]
    corpora: tuple[str, ...] = ("prose",)
    axes: Axes = Axes()
    n_batch: int = N_BATCH
    n_ubatch: int = N_UBATCH
    chunks: int = 0
    floor: float = FLOOR
    gpu_layers: int = -1
    mode: Mode | None = None
    streams: int | None = None
    logits: Path | None = None
    speeds: bool = True
    out: Path | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """One text at one length of context, with so many threads: what a base is run on once."""

    corpus: int
    n_ctx: int
    threads: int


@dataclass(frozen=True, slots=True)
class Variant:
    """How the quants' keys, values and attention are computed."""

    type_k: KVType
    type_v: KVType
    flash_attention: FlashAttention


def places(study: Study, default_threads: int) -> Iterator[Place]:
    """All texts, lengths and threads of a study."""
    axes = study.axes
    for corpus, n_ctx, threads in product(
        range(len(study.corpora)), axes.n_ctx, axes.threads or (default_threads,)
    ):
        yield Place(corpus, n_ctx, threads)


def variants(study: Study) -> tuple[Variant, ...]:
    """All ways to compute the quants; the base is always computed in llama.cpp's own way."""
    return tuple(
        Variant(*types, flash)
        for types, flash in product(study.axes.kv, study.axes.flash_attention)
    )


def shape_of(study: Study, place: Place) -> Shape:
    """How a text is cut and decoded there."""
    n_batch = min(study.n_batch, max(1, study.n_batch // place.n_ctx) * place.n_ctx)
    return Shape(place.n_ctx, n_batch, min(study.n_ubatch, study.n_batch))
