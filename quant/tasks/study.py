"""A study of tasks: what is to be run, and what it tells while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from quant.tasks.record import TaskRun
from quant.tasks.suite import Task
from veriloop_tui.core.ports import Cancel


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStudy:
    """Every model tries every task with every seed; the first model is the base.

    `attempts` bounds each run, `n_ctx` is in tokens, `threads` `None` for one per core,
    `temperature` `None` for the proposer's own, `results` a file of JSON lines that the study goes
    on from.
    """

    models: tuple[Path, ...]
    tasks: tuple[Task, ...]
    seeds: tuple[int, ...]
    results: Path
    attempts: int = 16
    n_ctx: int = 4096
    threads: int | None = None
    gpu_layers: int | None = None
    temperature: float | None = None
    edit_format: str = "auto"
    sandbox: str = "best"


@dataclass(frozen=True, slots=True)
class StudyBegun:
    """`of` runs are wanted; `known` of them are in the file already. Digests follow the models."""

    of: int
    known: int
    settings: str
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskBegun:
    """Run `index` of `of` begins."""

    model: str
    task: str
    seed: int
    index: int
    of: int


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A run ended, or was there from before."""

    run: TaskRun


@dataclass(frozen=True, slots=True)
class TaskNotice:
    """What the user should know, above all any degraded mode."""

    text: str


StudyEvent = StudyBegun | TaskBegun | TaskEnded | TaskNotice


class RunStudy(Protocol):
    """Whoever joins engine, controller and sandbox: the package itself knows only the engine."""

    def __call__(self, study: TaskStudy, cancel: Cancel) -> Iterator[StudyEvent]:
        """The study's events, first `StudyBegun`.

        Raises `UsageError`, `EngineError`, `SandboxUnavailable`, `TaskNotRun`, `Cancelled`.
        """
        ...
