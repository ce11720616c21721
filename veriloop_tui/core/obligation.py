"""What the user demands: a contract of obligations, and what running them showed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from veriloop_tui.core.canonical import digest

ReportKind = Literal["junit", "exit"]


@dataclass(frozen=True, slots=True)
class Obligation:
    """One local command whose outcome the user demands.

    `run` as a tuple is an argv; as a string it is the user's own shell line. `timeout` is in
    seconds per run; `repeats` is how often the baseline is measured; `confirm` says whether
    improved checks are measured again before a commit.
    """

    name: str
    run: tuple[str, ...] | str
    report: ReportKind
    timeout: float = 300.0
    repeats: int = 2
    confirm: bool = True


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """What a run may spend; `None` is no limit. `wall_time` and `verifier_time` in seconds."""

    attempts: int | None = 20
    tokens: int | None = None
    wall_time: float | None = 1800.0
    verifier_time: float | None = None
    store_bytes: int | None = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Contract:
    """The ordered obligations, the paths a proposal must not touch, and the declared budget.

    `protected` are gitignore-style patterns relative to the workspace.
    """

    obligations: tuple[Obligation, ...]
    protected: tuple[str, ...]
    budget: BudgetLimits

    @property
    def contract_hash(self) -> str:
        """Hex sha256 over everything the contract says."""
        return digest(self)


class CheckKind(StrEnum):
    """How a check's absence is read: see `rank.candidate_rank`."""

    TEST = "test"
    COLLECT = "collect"
    EXIT = "exit"
    COUNTED = "counted"


@dataclass(frozen=True, slots=True, order=True)
class CheckId:
    """The name of one check, the coordinate of a rank."""

    obligation: str
    kind: CheckKind
    name: str

    def __str__(self) -> str:
        return f"{self.obligation}:{self.name}"


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What one run said of one check.

    `value` is its rank, 0 = satisfied. A skipped check's value means nothing. `group` is the name
    of the collect check of the file it came from, empty if there is none. `excerpt` is bounded,
    sanitised failure text.
    """

    check: CheckId
    value: int
    skipped: bool = False
    group: str = ""
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """One run of one obligation's command, as it goes into the bundle.

    `exit_code` is negative for a signal; `duration` in seconds; `output_digest` is the sha256 of
    the whole output, `output_tail` its sanitised, bounded end.
    """

    obligation: str
    argv: tuple[str, ...]
    exit_code: int
    duration: float
    output_digest: str
    output_tail: str
    outcomes: tuple[CheckOutcome, ...]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A whole contract ran and every obligation could be read.

    `runs` holds one entry per repeat, each the outcomes of all obligations in that run. A check
    missing from a run was not reported by it. A later run may cover only some obligations:
    `covered[i]` names the obligations of `runs[i]`.
    """

    runs: tuple[tuple[CheckOutcome, ...], ...]
    covered: tuple[frozenset[str], ...]
    records: tuple[CommandRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Partial:
    """The run was stopped early because a worsening had sealed the candidate's fate."""

    worsened: tuple[CheckId, ...]
    records: tuple[CommandRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Unrankable:
    """The verifier could not turn the run of `obligation` into ranks, and why."""

    obligation: str
    reason: str
    records: tuple[CommandRecord, ...] = ()


Measurement = Ranked | Partial | Unrankable
