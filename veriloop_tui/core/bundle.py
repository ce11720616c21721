"""CertifiedBundle: all that is bound together by one commit, under one content hash."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from veriloop_tui.core.budget import Spent
from veriloop_tui.core.canonical import digest
from veriloop_tui.core.chat import ModelFacts, Sampling
from veriloop_tui.core.obligation import CommandRecord
from veriloop_tui.core.rank import Rank
from veriloop_tui.core.snapshot import SnapshotId


@dataclass(frozen=True, slots=True)
class ControlledState:
    """What a run carries from attempt to attempt; quarantined checks are in the rank."""

    rank: Rank
    attempt: int
    spent: Spent
    memory_digest: str


class Origin(StrEnum):
    """How a bundle's snapshot came about.

    `MEASURED` was found in the workspace, `PROPOSED` came from a model and was committed by the
    rule, `RESTORED` was brought back by the user; one without verification was not run again.
    """

    MEASURED = "measured"
    PROPOSED = "proposed"
    RESTORED = "restored"


@dataclass(frozen=True, slots=True)
class Binding:
    """Everything that the result depends on.

    `parent` is the bundle before this one, empty for the first. `model` is `None` where no model
    proposed the snapshot (a baseline, a user's edit, a roll-back). Hashes are hex sha256.
    """

    origin: Origin
    parent: str
    contract_hash: str
    task: str
    model: ModelFacts | None
    sampling: Sampling | None
    seed: int
    prompt_hash: str
    program_version: str
    sandbox_tier: str
    staging_rung: str
    platform: str


@dataclass(frozen=True, slots=True)
class CertifiedBundle:
    """A snapshot, the state bound to it, the runs that verified it, and their binding."""

    artifact: SnapshotId
    state: ControlledState
    verification: tuple[CommandRecord, ...]
    binding: Binding

    @property
    def bundle_id(self) -> str:
        """Hex sha256 over the canonical form of everything in the bundle."""
        return digest(self)
