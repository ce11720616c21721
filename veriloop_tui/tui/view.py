"""What the screen shows, as plain data.

Every text in a `View` is sanitised and bounded: it may go to the screen as it is. Nothing here
knows of widgets, threads or time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from veriloop_tui.core.budget import Spent
from veriloop_tui.core.chat import ModelFacts, Timings, Usage
from veriloop_tui.core.obligation import BudgetLimits
from veriloop_tui.core.transition import Decision, Label
from veriloop_tui.core.wording import Names


class Phase(StrEnum):
    """What is going on, as the header says it."""

    IDLE = "ready"
    STARTING = "starting"
    MEASURING = "measuring the workspace"
    PROPOSING = "proposing"
    READING = "reading the answer"
    VERIFYING = "verifying"
    ASKING = "waiting for you"
    DECIDING = "deciding"


@dataclass(frozen=True, slots=True)
class FailingLine:
    """One unsatisfied check of the incumbent."""

    name: str
    value: int
    excerpt: str


@dataclass(frozen=True, slots=True)
class ObligationLine:
    """One obligation of the incumbent; `unsatisfied` counts all failing checks, shown or not."""

    name: str
    total: int
    checks: int
    failing: tuple[FailingLine, ...]
    unsatisfied: int
    quarantined: Names
    duration: float


@dataclass(frozen=True, slots=True)
class Incumbent:
    """The rank that candidates are compared with."""

    total: int
    obligations: tuple[ObligationLine, ...]
    epoch: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt, running (`label` is `None`) or ended.

    `serial` is its place in this view, `number` its place in its run. `forgotten` says that
    answer, diff and evidence were dropped to bound memory.
    """

    serial: int
    number: int
    form: str = ""
    target: str = ""
    answer: str = ""
    diff: str = ""
    paths: Names = field(default_factory=Names)
    usage: Usage | None = None
    timings: Timings | None = None
    run_index: int = 0
    label: Label | None = None
    decision: Decision | None = None
    verdict: str = ""
    improved: Names = field(default_factory=Names)
    worsened: Names = field(default_factory=Names)
    rank_before: int | None = None
    rank_after: int | None = None
    evidence: str = ""
    bundle: str = ""
    program_time: float = 0.0
    forgotten: bool = False


@dataclass(frozen=True, slots=True)
class RunLine:
    """The head of a run in the timeline; `outcome` is empty while it goes on."""

    serial: int
    task: str
    outcome: str = ""


Entry = Attempt | RunLine


@dataclass(frozen=True, slots=True)
class Question:
    """A verified candidate that waits for the user. `cut` says that the diff is not shown whole."""

    attempt: int
    improved: Names
    warnings: tuple[str, ...]
    cut: bool


Tone = Literal["note", "good", "bad", "error"]


@dataclass(frozen=True, slots=True)
class News:
    """One sentence for the user."""

    tone: Tone
    text: str


@dataclass(frozen=True, slots=True)
class View:
    """All that the screen shows, except what `SessionFacts` say."""

    phase: Phase = Phase.IDLE
    task: str = ""
    model: ModelFacts | None = None
    sandbox_tier: str = ""
    staging_rung: str = ""
    budget: BudgetLimits | None = None
    spent: Spent = field(default_factory=Spent)
    usage: Usage | None = None
    timings: Timings | None = None
    first_total: int | None = None
    incumbent: Incumbent | None = None
    timeline: tuple[Entry, ...] = ()
    dropped: int = 0
    current: Attempt | None = None
    question: Question | None = None
    news: tuple[News, ...] = ()
    next_serial: int = 0
