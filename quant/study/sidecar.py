"""The settings of a measurement, written beside it: results of unequal ones are never put together.

A ground is everything that the base and all quants have in common; a contestant is one model with
what is its own. Names are labels and take no part in the keys.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from quant.losses.scoring import FLOOR
from quant.running.shape import Shape
from quant.study.vocabulary import Backend
from veriloop_tui.core.canonical import digest, to_json
from veriloop_tui.engine.settings import FlashAttention, KVType
from veriloop_tui.errors import RecordInvalid

_FORMAT: Final = 1
_KEY: Final = 16


@dataclass(frozen=True, slots=True)
class Ground:
    """What is measured on, and how.

    `base` is the model's sha256, `text` the sha256 of the corpus, `tokens` that of its tokens;
    `bos` replaces the first token of each chunk unless it is `None`. `vocabulary` tokens count.
    `floor` in nats.
    """

    base: str
    text: str
    parse_special: bool
    tokens: str
    bos: int | None
    vocabulary: int
    chunks: int
    shape: Shape
    threads: int
    gpu_layers: int
    backend: Backend
    floor: float = FLOOR
    format: int = _FORMAT

    @property
    def key(self) -> str:
        """The same for equal grounds only."""
        return digest(self)[:_KEY]


@dataclass(frozen=True, slots=True)
class Contestant:
    """A model, by its sha256, and how its keys, values and attention are computed.

    The base is held against itself, which tells what rounding alone costs.
    """

    model: str
    role: Literal["base", "quant"] = "quant"
    type_k: KVType = "f16"
    type_v: KVType = "f16"
    flash_attention: FlashAttention = "auto"

    @property
    def key(self) -> str:
        """The same for equal contestants only."""
        return digest(self)[:_KEY]


@dataclass(frozen=True, slots=True)
class Speeds:
    """Tokens per second, one of each measurement: of reading a prompt, and of writing."""

    read: tuple[float, ...]
    written: tuple[float, ...]


def write_sidecar(path: Path, settings: Ground | Contestant, labels: dict[str, object]) -> None:
    """Write settings with what people want to know beside them. Raises `RecordInvalid`."""
    document = {
        "kind": type(settings).__name__.lower(),
        "settings": to_json(settings),
        "labels": to_json(labels),
    }
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
        part.replace(path)
    except OSError as problem:
        raise RecordInvalid(str(path), problem.strerror or str(problem)) from problem


def check_sidecar(path: Path, settings: Ground | Contestant) -> bool:
    """Whether a sidecar tells of the same settings; false if there is none or it cannot be read."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and document.get("settings") == to_json(settings)


def read_speeds(path: Path) -> Speeds | None:
    """Speeds that were measured before; `None` if there are none that can be read."""
    try:
        found = json.loads(path.read_text("utf-8"))
        return Speeds(tuple(map(float, found["read"])), tuple(map(float, found["written"])))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_speeds(path: Path, speeds: Speeds) -> None:
    """Write speeds. Raises `RecordInvalid`."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(json.dumps(to_json(speeds)) + "\n", "utf-8")
        part.replace(path)
    except OSError as problem:
        raise RecordInvalid(str(path), problem.strerror or str(problem)) from problem
