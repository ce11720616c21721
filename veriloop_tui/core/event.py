"""The event union: everything a run tells the world, in the order it happened.

Events are the contract between the controller and whoever watches (terminal, JSON lines, ledger,
replay). Each has a `type`; times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from veriloop_tui.core.budget import Spent
from veriloop_tui.core.canonical import Json, to_json
from veriloop_tui.core.chat import ModelFacts, Timings, Usage
from veriloop_tui.core.evidence import Evidence
from veriloop_tui.core.obligation import BudgetLimits, CheckId
from veriloop_tui.core.snapshot import SnapshotId
from veriloop_tui.core.transition import Decision, Label


class Outcome(StrEnum):
    """How a run ended. `COMPLETE` is rank zero under this contract, no more."""

    COMPLETE = "complete"
    NOTHING_TO_IMPROVE = "nothing-to-improve"
    STALLED = "stalled"
    BUDGET_SPENT = "budget-spent"
    STOPPED = "stopped"
    ENGINE_FAILED = "engine-failed"
    NOT_RANKABLE = "not-rankable"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class FailingCheck:
    """One unsatisfied check, for people to read."""

    check: CheckId
    value: int
    excerpt: str


@dataclass(frozen=True, slots=True)
class ObligationStatus:
    """One obligation of the incumbent: its rank as a sum, how many checks it has, what fails."""

    name: str
    total: int
    checks: int
    failing: tuple[FailingCheck, ...]
    quarantined: tuple[CheckId, ...]
    duration: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run begins; nothing has been measured yet."""

    run: str
    task: str
    model: ModelFacts | None
    contract_hash: str
    sandbox_tier: str
    staging_rung: str
    budget: BudgetLimits
    type: Literal["run-started"] = "run-started"


@dataclass(frozen=True, slots=True, kw_only=True)
class IncumbentMeasured:
    """The incumbent's rank, at the start of an epoch or after a commit."""

    snapshot: SnapshotId
    total: int
    obligations: tuple[ObligationStatus, ...]
    epoch: int
    type: Literal["incumbent-measured"] = "incumbent-measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStarted:
    """The ground moved (a user's edit, a roll-back, a changed contract); ranks start afresh."""

    epoch: int
    reason: str
    paths: tuple[str, ...]
    type: Literal["epoch-started"] = "epoch-started"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """The model is asked. `target` is the function or file in view, empty for the whole task."""

    attempt: int
    form: str
    target: str
    seed: int
    type: Literal["attempt-started"] = "attempt-started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalDelta:
    """The next piece of the model's answer, as it came (unsanitised)."""

    attempt: int
    text: str
    type: Literal["proposal-delta"] = "proposal-delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalFinished:
    """The whole answer and what it cost."""

    attempt: int
    text: str
    finish_reason: str
    usage: Usage
    timings: Timings
    type: Literal["proposal-finished"] = "proposal-finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateParsed:
    """The answer is a candidate; `diff` is a bounded unified diff."""

    attempt: int
    paths: tuple[str, ...]
    diff: str
    type: Literal["candidate-parsed"] = "candidate-parsed"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationStarted:
    """The contract runs on the staged candidate; `run_index` 1 and up are repeats."""

    attempt: int
    run_index: int
    obligations: tuple[str, ...]
    type: Literal["verification-started"] = "verification-started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequested:
    """A verified candidate may be committed; the user is asked."""

    attempt: int
    improved: tuple[CheckId, ...]
    diff: str
    warnings: tuple[str, ...]
    type: Literal["approval-requested"] = "approval-requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """What an attempt came to. `bundle` is the new bundle's id where it was committed.

    `repeated` says that the label was recalled instead of measured again. `program_time` is the
    time spent outside model and commands, in seconds.
    """

    attempt: int
    label: Label
    decision: Decision
    improved: tuple[CheckId, ...]
    worsened: tuple[CheckId, ...]
    revealed: tuple[CheckId, ...]
    rank_before: int
    rank_after: int | None
    reason: str
    repeated: bool
    zero_rank: bool
    evidence: Evidence
    bundle: str
    spent: Spent
    program_time: float
    type: Literal["attempt-ended"] = "attempt-ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack:
    """The user went back to `target`; `previous` is the bundle that undoes this."""

    target: str
    previous: str
    bundle: str
    paths: tuple[str, ...]
    type: Literal["rolled-back"] = "rolled-back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something the user should know, above all any degraded mode."""

    text: str
    type: Literal["notice"] = "notice"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The last event of every run. `detail` names the budget or error that ended it."""

    run: str
    outcome: Outcome
    detail: str
    attempts: int
    commits: int
    rank_before: int | None
    rank_after: int | None
    bundle: str
    spent: Spent
    type: Literal["run-ended"] = "run-ended"


Event = (
    RunStarted
    | IncumbentMeasured
    | EpochStarted
    | AttemptStarted
    | ProposalDelta
    | ProposalFinished
    | CandidateParsed
    | VerificationStarted
    | ApprovalRequested
    | AttemptEnded
    | RolledBack
    | Notice
    | RunEnded
)


def event_json(event: Event) -> dict[str, Json]:
    """The event as a JSON object, `type` first."""
    fields = to_json(event)
    assert isinstance(fields, dict)
    return {"type": fields.pop("type"), **fields}
