"""What a commit binds together, and what an attempt leaves in memory."""

from __future__ import annotations

import hashlib

from veriloop_tui.core.budget import Spent
from veriloop_tui.core.bundle import Binding, CertifiedBundle, ControlledState, Origin
from veriloop_tui.core.excerpt import excerpt
from veriloop_tui.core.memory import Displacement, ExplorationMemory
from veriloop_tui.core.snapshot import SnapshotId
from veriloop_tui.core.transition import Decision, Transition
from veriloop_tui.loop.incumbent import Incumbent
from veriloop_tui.loop.plan import Attempt, Parts, Plan

MEMORY_DIFF = 2000
MEMORY_NAMES = 50
MEMORY_REASON = 500


def bind(
    plan: Plan,
    parts: Parts,
    incumbent: Incumbent,
    spent: Spent,
    memory: ExplorationMemory,
    attempt: Attempt | None,
) -> CertifiedBundle:
    """The bundle of an incumbent; without an attempt it is one that no model proposed."""
    asked = attempt.asked if attempt else None
    return CertifiedBundle(
        artifact=incumbent.snapshot,
        state=ControlledState(
            rank=incumbent.rank,
            attempt=spent.attempts,
            spent=spent,
            memory_digest=memory.memory_digest,
        ),
        verification=incumbent.records,
        binding=Binding(
            origin=Origin.PROPOSED if attempt else Origin.MEASURED,
            parent=parts.ledger.head(),
            contract_hash=plan.contract.contract_hash,
            task=plan.task,
            model=parts.model if attempt else None,
            sampling=asked.sampling if asked else None,
            seed=attempt.seed if attempt else plan.seed,
            prompt_hash=asked.prompt_hash if asked else "",
            program_version=plan.program_version,
            sandbox_tier=parts.verifier.sandbox_tier,
            staging_rung=parts.verifier.staging_rung,
            platform=plan.platform,
        ),
    )


def displacement(
    attempt: Attempt, base: SnapshotId, transition: Transition, decision: Decision
) -> Displacement:
    """What the exploration memory keeps of a rejected attempt."""
    return Displacement(
        base=base,
        tree=attempt.tree or "",
        answer=hashlib.sha256(attempt.answer.encode("utf-8", "replace")).hexdigest(),
        label=transition.label,
        decision=decision,
        worsened=transition.worsened[:MEMORY_NAMES],
        diff=excerpt(attempt.diff, MEMORY_DIFF),
        reason=excerpt(transition.reason, MEMORY_REASON),
        target=attempt.asked.target if attempt.asked else "",
    )
