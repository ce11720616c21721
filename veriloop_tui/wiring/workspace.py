"""A workspace opened: its settings, contract, store, ledger and promoter, under one lock."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from veriloop_tui.config import Settings, load_settings, user_file
from veriloop_tui.contract.job import Sandbox
from veriloop_tui.contract.sandbox import Host, choose_sandbox
from veriloop_tui.contract.schema import CONTRACT_FILE, load_contract
from veriloop_tui.contract.trust import has_trusted_before, is_trusted
from veriloop_tui.contract.verify import ContractVerifier
from veriloop_tui.core.obligation import Contract
from veriloop_tui.core.snapshot import Entry, SnapshotId
from veriloop_tui.errors import UntrustedContract, UsageError
from veriloop_tui.ledger.journal import ReadLedger, SqliteLedger
from veriloop_tui.store.database import Database, reading
from veriloop_tui.store.lock import WorkspaceLock
from veriloop_tui.store.promotion.promoter import JournalledPromoter
from veriloop_tui.store.snapshots import StoredSnapshots, WorkspaceSnapshots
from veriloop_tui.store.staging.ladder import choose_stager
from veriloop_tui.wiring.clock import SystemClock

TRUST_FILE = "trust.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What was given on the command line; `None` was not."""

    model: str | None = None
    draft: str | None = None
    draft_max: int | None = None
    speculation: str | None = None
    lookup: bool | None = None
    parallel: int | None = None
    type_k: str | None = None
    type_v: str | None = None
    flash_attention: str | None = None
    devices: str | None = None
    split_mode: str | None = None
    tensor_split: str | None = None
    server: str | None = None
    server_model: str | None = None
    attempts: int | None = None
    temperature: float | None = None
    edit_format: str | None = None
    sandbox: str | None = None
    n_ctx: int | None = None
    threads: int | None = None
    gpu_layers: int | None = None


@dataclass(frozen=True, slots=True)
class Location:
    """A workspace and where its records are, before anything is opened."""

    root: Path
    settings: Settings
    data: Path

    @property
    def trust_file(self) -> Path:
        """The hashes of the contracts that the user trusts."""
        return self.data / TRUST_FILE

    def contract(self) -> Contract:
        """The contract as it is now. Raises `ContractError`."""
        return load_contract(self.root)

    def trusted_contract(self) -> Contract:
        """The contract, if its commands may run. Raises `UntrustedContract`, `ContractError`."""
        contract = self.contract()
        if not is_trusted(self.trust_file, contract):
            raise UntrustedContract(
                CONTRACT_FILE, contract.contract_hash, has_trusted_before(self.trust_file)
            )
        return contract


def locate(workspace: Path, flags: Flags | None = None) -> Location:
    """The workspace's settings and data folder. Raises `UsageError`, `SettingsError`."""
    root = workspace.expanduser().resolve()
    if not root.is_dir():
        raise UsageError(f"{workspace} is not a folder; name an existing one with --workspace.")
    settings = load_settings(asdict(flags or Flags()), os.environ, root, user_file())
    path = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    name = re.sub(r"[^A-Za-z0-9._-]", "_", root.name)[:40]
    return Location(root, settings, settings.data_dir / "workspaces" / f"{name}-{path}")


def sandbox_of(location: Location) -> Sandbox:
    """The isolation that the settings name. Raises `SandboxUnavailable`."""
    settings, path = location.settings, os.environ.get("PATH", os.defpath)
    host = Host(path, Path.home(), private=(settings.data_dir,))
    return choose_sandbox(settings.sandbox, host, SystemClock())


@dataclass(slots=True)
class Workspace:
    """An open workspace.

    `notices` are degraded modes and repairs that nobody has told yet; `rung` is the rung of the
    staging ladder in use, empty before the first measurement.
    """

    location: Location
    snapshots: WorkspaceSnapshots
    ledger: SqliteLedger
    promoter: JournalledPromoter
    clock: SystemClock
    notices: list[str] = field(default_factory=list)
    rung: str = ""

    def verifier(self, contract: Contract) -> ContractVerifier:
        """The verifier of this workspace. Raises `SandboxUnavailable`, `StagingUnavailable`."""
        location = self.location
        sandbox = sandbox_of(location)
        stager, notes = choose_stager(location.root, location.data / "scratch")
        self.notices += [*sandbox.notices, *notes]
        self.rung = stager.rung
        return ContractVerifier(
            contract.obligations,
            stager,
            sandbox,
            self.snapshots.seen,
            self.snapshots.look_again,
            self.clock,
        )

    def told(self) -> tuple[str, ...]:
        """The notices so far; each is given once."""
        told = tuple(self.notices)
        self.notices.clear()
        return told


@contextmanager
def opened(location: Location) -> Iterator[Workspace]:
    """Open for writing, after settling what a crash may have left.

    Raises `WorkspaceBusy`, `SnapshotRefused`, `StoreError`.
    """
    clock = SystemClock()
    notices: list[str] = []
    with WorkspaceLock(location.data, location.root, clock) as lock, Database(location.data) as db:
        ledger = SqliteLedger(db.connect(), clock.now)

        def entry(snapshot: SnapshotId, path: str) -> Entry | None:
            return snapshots.entries(snapshot).get(path)

        promoter = JournalledPromoter(
            location.root,
            location.data,
            entry=entry,
            committed=ledger.has_bundle,
            lock=lock,
            clock=clock,
            notice=notices.append,
        )
        report = promoter.recover()
        if report.outcome != "nothing-open":
            paths = ", ".join(report.paths)
            notices.append(f"A promotion that was interrupted is {report.outcome}: {paths}.")
        snapshots = WorkspaceSnapshots(location.root, db, home=Path.home())
        yield Workspace(location, snapshots, ledger, promoter, clock, notices)


@dataclass(frozen=True, slots=True)
class Records:
    """What was recorded, opened for reading only."""

    connection: sqlite3.Connection
    ledger: ReadLedger
    snapshots: StoredSnapshots


@contextmanager
def recorded(location: Location) -> Iterator[Records]:
    """The records of a workspace. Raises `NothingRecorded`."""
    with reading(location.data) as connection:
        ledger = ReadLedger(connection)
        yield Records(
            connection, ledger, StoredSnapshots.on(connection, location.data / "segments")
        )
