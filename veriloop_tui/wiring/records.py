"""What was recorded: history, bundles, differences, roll-back, fsck."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from veriloop_tui import __version__
from veriloop_tui.core.bundle import CertifiedBundle
from veriloop_tui.core.diff import unified_diff
from veriloop_tui.core.event import (
    AttemptEnded,
    EpochStarted,
    Event,
    IncumbentMeasured,
    RolledBack,
    RunEnded,
    RunStarted,
)
from veriloop_tui.core.snapshot import SnapshotId
from veriloop_tui.errors import SnapshotNotFound
from veriloop_tui.ledger import fsck as ledger_fsck
from veriloop_tui.ledger.fsck import Damage, Surroundings
from veriloop_tui.ledger.journal import ReadLedger, read_event
from veriloop_tui.loop.rollback import plan_rollback, roll_back
from veriloop_tui.store.audit import audit_content, audit_files, has_snapshot
from veriloop_tui.store.database import DATABASE_NAME, reading
from veriloop_tui.wiring.running import describe_platform
from veriloop_tui.wiring.workspace import Location, Workspace, recorded


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One recorded event; `time` in seconds since the epoch, `bundle` empty if none was made."""

    time: float
    run: str
    bundle: str
    hash: str
    event: Event


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between two bundles' snapshots."""

    old: str
    new: str
    paths: tuple[str, ...]
    text: str


def history(location: Location) -> tuple[HistoryRow, ...]:
    """Runs, bundles, attempts and roll-backs, oldest first; empty where nothing is recorded."""
    if not (location.data / DATABASE_NAME).is_file():
        return ()
    told = (RunStarted, IncumbentMeasured, EpochStarted, AttemptEnded, RolledBack, RunEnded)
    with recorded(location) as records:
        rows = ((row, read_event(row)) for row in records.ledger.rows())
        return tuple(
            HistoryRow(row.time, row.run, row.bundle, row.hash, event)
            for row, event in rows
            if row.bundle or isinstance(event, told)
        )


def ledger_head(location: Location) -> str:
    """The hash of the ledger's last row, to note down for `fsck --head`."""
    with recorded(location) as records:
        return records.ledger.chain_head()


def bundle(location: Location, ident: str) -> CertifiedBundle:
    """The bundle whose id begins with `ident`. Raises `SnapshotNotFound`."""
    with recorded(location) as records:
        return records.ledger.bundle(bundle_id(records.ledger, ident))


def bundle_id(ledger: ReadLedger, ident: str) -> str:
    """The whole id of the one bundle that begins so. Raises `SnapshotNotFound`."""
    found = ledger.find(ident)
    if found.kind != "bundle":
        raise SnapshotNotFound(ident)
    return found.id


def diff(location: Location, old: str, new: str) -> Difference:
    """The unified diff between two bundles. Raises `SnapshotNotFound`."""
    with recorded(location) as records:
        before, after = (
            records.ledger.bundle(bundle_id(records.ledger, ident)) for ident in (old, new)
        )
        snapshots = records.snapshots

        def read(snapshot: SnapshotId, path: str) -> bytes | None:
            try:
                return snapshots.read(snapshot, path)
            except KeyError:
                return None

        changes = snapshots.changes_between(before.artifact, after.artifact)
        text = unified_diff(changes, partial(read, before.artifact))
        paths = tuple(change.path for change in changes)
        return Difference(before.bundle_id, after.bundle_id, paths, text)


def rollback(
    workspace: Workspace,
    ident: str,
    confirmed: Callable[[tuple[str, ...], tuple[str, ...]], bool],
) -> RolledBack | None:
    """Go back to a bundle if `confirmed` says so of the paths and of those the user edited."""
    ledger, snapshots = workspace.ledger, workspace.snapshots
    plan = plan_rollback(snapshots, ledger.bundles(), bundle_id(ledger, ident))
    if not confirmed(plan.candidate.paths, plan.overwrites):
        return None
    return roll_back(
        plan,
        secrets.token_hex(8),
        ledger,
        workspace.promoter,
        __version__,
        describe_platform(),
    )


def fsck(location: Location, head: str) -> tuple[Damage, ...]:
    """Every place that is not as it was written. Raises `NothingRecorded`."""
    surroundings = Surroundings(
        connect=lambda: reading(location.data),
        files=lambda: audit_files(location.data),
        stored=lambda connection: audit_content(connection, location.data),
        has_snapshot=has_snapshot,
    )
    return ledger_fsck.check(surroundings, head or None)
