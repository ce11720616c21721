"""What the screen for comparing quants is told and what it asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from veriloop_tui.core.ports import Cancel


@dataclass(frozen=True, slots=True)
class LabFile:
    """A model in the folder; `size` in bytes over all its parts, `bpw` in bits per weight."""

    path: str
    name: str
    size: int
    bpw: float


@dataclass(frozen=True, slots=True)
class LabPlan:
    """What is to be measured. `chunks` at most, 0 for all."""

    base: str
    quants: tuple[str, ...]
    corpus: str
    n_ctx: int
    chunks: int


@dataclass(frozen=True, slots=True)
class LabValue:
    """A number with one standard error."""

    value: float
    error: float


@dataclass(frozen=True, slots=True)
class LabRow:
    """One quant so far; `problem` says why it was stopped. `place` is 0 until all is measured."""

    name: str
    size: int
    chunks: int
    kld: LabValue | None
    ppl_ratio: LabValue | None
    same_top: LabValue | None
    problem: str = ""
    place: int = 0
    on_front: bool = False


@dataclass(frozen=True, slots=True)
class LabBegun:
    """What it will take, in words."""

    told: str


@dataclass(frozen=True, slots=True)
class LabProgress:
    """Numbers so far; `done` of `of` chunks through models, `left` in words."""

    done: int
    of: int
    left: str
    rows: tuple[LabRow, ...]


@dataclass(frozen=True, slots=True)
class LabDone:
    """The end: all numbers, the report's page, and what is to be said besides."""

    rows: tuple[LabRow, ...]
    page: str
    notices: tuple[str, ...]


LabEvent = LabBegun | LabProgress | LabDone


class QuantLab(Protocol):
    """Models in a folder, and the comparing of them."""

    def files(self) -> tuple[LabFile, ...]:
        """The models, the largest first. Raises `UsageError`."""

    def corpora(self) -> tuple[str, ...]:
        """Texts to choose from."""

    def run(self, plan: LabPlan, told: Callable[[LabEvent], None], cancel: Cancel) -> None:
        """Measure, and write a report; `told` is called from several threads.

        What was measured is kept when it stops. Raises `QuantError`, `UsageError`,
        `EngineError`, `Cancelled`.
        """
