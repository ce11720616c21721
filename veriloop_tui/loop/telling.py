"""The controller's longer events, made from what it knows at that moment."""

from __future__ import annotations

from veriloop_tui.core.budget import Spent
from veriloop_tui.core.event import AttemptEnded, AttemptStarted, IncumbentMeasured
from veriloop_tui.core.evidence import compile_evidence
from veriloop_tui.core.obligation import Contract
from veriloop_tui.core.ports import Asked
from veriloop_tui.core.rank import Rank
from veriloop_tui.core.transition import Decision, Transition
from veriloop_tui.loop.incumbent import Incumbent, Judged
from veriloop_tui.loop.plan import Attempt


def attempt_started(attempt: Attempt, asked: Asked) -> AttemptStarted:
    """The model is about to be asked."""
    return AttemptStarted(
        attempt=attempt.number, form=asked.form, target=asked.target, seed=attempt.seed
    )


def incumbent_measured(incumbent: Incumbent, contract: Contract, epoch: int) -> IncumbentMeasured:
    """What the incumbent's measurement showed."""
    return IncumbentMeasured(
        snapshot=incumbent.snapshot,
        total=incumbent.rank.total,
        obligations=incumbent.statuses(contract),
        epoch=epoch,
    )


def attempt_ended(
    attempt: Attempt,
    incumbent: Rank,
    transition: Transition,
    decision: Decision,
    judged: Judged | None,
    spent: Spent,
    now: float,
    *,
    repeated: bool = False,
    bundle: str = "",
) -> AttemptEnded:
    """What the attempt came to, with its evidence; `now` is on the clock of `attempt.started`."""
    outcomes = judged.outcomes if judged else ()
    others = attempt.model_time + attempt.user_time + attempt.verifier_time
    return AttemptEnded(
        attempt=attempt.number,
        label=transition.label,
        decision=decision,
        improved=transition.improved,
        worsened=transition.worsened,
        revealed=transition.revealed,
        rank_before=incumbent.total,
        rank_after=None if transition.rank is None else transition.rank.total,
        reason=transition.reason,
        repeated=repeated,
        zero_rank=transition.zero_rank,
        evidence=compile_evidence(incumbent, transition, decision, outcomes),
        bundle=bundle,
        spent=spent,
        program_time=max(0.0, now - attempt.started - others),
    )
