"""What a run is to do, what it works through, and what one attempt gathers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from veriloop_tui.core.chat import ModelFacts
from veriloop_tui.core.obligation import BudgetLimits, CommandRecord, Contract
from veriloop_tui.core.ports import (
    Approver,
    Asked,
    Clock,
    Ledger,
    Promoter,
    Proposer,
    Snapshots,
    Verifier,
)
from veriloop_tui.core.snapshot import Candidate, SnapshotId


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is to do, declared before it starts.

    `budget` is the contract's, or what the user set for this run in its place.
    """

    run: str
    task: str
    contract: Contract
    budget: BudgetLimits
    protects: Callable[[str], bool]
    seed: int
    program_version: str
    platform: str


@dataclass(frozen=True, slots=True)
class Parts:
    """The ports a run works through. `stored_bytes` tells the size of the store."""

    model: ModelFacts | None
    snapshots: Snapshots
    verifier: Verifier
    promoter: Promoter
    proposer: Proposer
    ledger: Ledger
    approver: Approver
    clock: Clock
    stored_bytes: Callable[[], int]


@dataclass(slots=True)
class Attempt:
    """One attempt while it happens; times in seconds, `started` on the monotonic clock.

    `model_time` and `user_time` are spent outside the program, as is `verifier_time`.
    """

    number: int
    seed: int
    started: float
    asked: Asked | None = None
    answer: str = ""
    model_time: float = 0.0
    user_time: float = 0.0
    candidate: Candidate | None = None
    tree: SnapshotId | None = None
    diff: str = ""
    records: tuple[CommandRecord, ...] = ()

    @property
    def verifier_time(self) -> float:
        """Seconds that the contract's commands ran."""
        return sum(record.duration for record in self.records)


def attempt_seed(run_seed: int, attempt: int, candidate: int = 0) -> int:
    """A 31-bit seed that depends on nothing but its arguments."""
    text = f"{run_seed}/{attempt}/{candidate}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1
