"""Going back to an earlier bundle: recorded, reversible, and only where the program wrote.

What is restored are the paths that commits and earlier roll-backs changed since the target; what
the user made beside them stays. Deletions are of files those commits created, never of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veriloop_tui.core.budget import Spent
from veriloop_tui.core.bundle import Binding, CertifiedBundle, ControlledState, Origin
from veriloop_tui.core.event import Notice, RolledBack
from veriloop_tui.core.memory import ExplorationMemory
from veriloop_tui.core.ports import Ledger, Promoter, Snapshots
from veriloop_tui.core.rank import Rank
from veriloop_tui.core.snapshot import Candidate, SnapshotId
from veriloop_tui.errors import SnapshotNotFound, UsageError


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """Exactly what a roll-back would do. `overwrites` are paths the user edited since."""

    target: CertifiedBundle
    candidate: Candidate
    result: SnapshotId
    overwrites: tuple[str, ...]


def plan_rollback(
    snapshots: Snapshots, bundles: Sequence[CertifiedBundle], target_id: str
) -> RollbackPlan:
    """What going back to the bundle `target_id` changes in the workspace as it is now.

    Raises `SnapshotNotFound` for an unknown bundle and `UsageError` where nothing would change.
    """
    index = next((i for i, b in enumerate(bundles) if b.bundle_id == target_id), None)
    if index is None:
        raise SnapshotNotFound(target_id)
    target, live = bundles[index], snapshots.take()
    ours: set[str] = set()
    theirs: set[str] = set()
    for before, after in zip(bundles[index:], bundles[index + 1 :], strict=False):
        moved = {c.path for c in snapshots.changes_between(before.artifact, after.artifact)}
        (theirs if after.binding.origin is Origin.MEASURED else ours).update(moved)
    theirs.update(c.path for c in snapshots.changes_between(bundles[-1].artifact, live))
    back = tuple(c for c in snapshots.changes_between(live, target.artifact) if c.path in ours)
    if not back:
        raise UsageError("There is nothing to roll back: the workspace holds that state already.")
    candidate = Candidate(live, back)
    overwrites = tuple(path for path in candidate.paths if path in theirs)
    return RollbackPlan(target, candidate, snapshots.candidate(candidate), overwrites)


def roll_back(
    plan: RollbackPlan, run: str, ledger: Ledger, promoter: Promoter, version: str, platform: str
) -> RolledBack:
    """Carry out the plan under the journal. Raises `StaleBase` if the user edits meanwhile.

    The state before is bound in a bundle of its own, so that the roll-back can be undone.
    """
    previous = ledger.head()
    kept = next(b for b in reversed(ledger.bundles()) if b.bundle_id == previous)
    base = plan.candidate.base
    if kept.artifact != base:
        found = _unverified(plan, base, previous, Origin.MEASURED, version, platform)
        text = "The workspace as it was before the roll-back is kept."
        ledger.commit(run, found, Notice(text=text))
        previous = found.bundle_id
    bundle = _unverified(plan, plan.result, previous, Origin.RESTORED, version, platform)
    event = RolledBack(
        target=plan.target.bundle_id,
        previous=previous,
        bundle=bundle.bundle_id,
        paths=plan.candidate.paths,
    )

    promoter.promote(
        plan.candidate,
        plan.result,
        bundle.bundle_id,
        lambda: ledger.commit(run, bundle, event),
    )
    return event


def _unverified(
    plan: RollbackPlan,
    artifact: SnapshotId,
    parent: str,
    origin: Origin,
    version: str,
    platform: str,
) -> CertifiedBundle:
    """A bundle that records bytes only: no command ran on them, so it has no rank."""
    return CertifiedBundle(
        artifact=artifact,
        state=ControlledState(Rank(()), 0, Spent(), ExplorationMemory().memory_digest),
        verification=(),
        binding=Binding(
            origin=origin,
            parent=parent,
            contract_hash=plan.target.binding.contract_hash,
            task="",
            model=None,
            sampling=None,
            seed=0,
            prompt_hash="",
            program_version=version,
            sandbox_tier="",
            staging_rung="",
            platform=platform,
        ),
    )
