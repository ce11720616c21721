"""The ports: what the controller needs of the other parts, and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from veriloop_tui.core.bundle import CertifiedBundle
from veriloop_tui.core.chat import ChatEvent, ChatRequest, ModelFacts, Sampling, Timings, Usage
from veriloop_tui.core.event import Event
from veriloop_tui.core.evidence import Evidence
from veriloop_tui.core.memory import ExplorationMemory
from veriloop_tui.core.obligation import CheckOutcome, Measurement
from veriloop_tui.core.snapshot import Candidate, Change, Entry, SnapshotId
from veriloop_tui.core.transition import Transition


class Cancel(Protocol):
    """A request to stop; `threading.Event` is one."""

    def is_set(self) -> bool: ...


class Clock(Protocol):
    """Time, injected so that runs can be replayed."""

    def monotonic(self) -> float:
        """Seconds that only grow."""
        ...

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


class ChatModel(Protocol):
    """A model that answers."""

    def facts(self) -> ModelFacts:
        """What is known of the loaded model. Raises `EngineError`."""
        ...

    def complete(self, request: ChatRequest, cancel: Cancel) -> Iterator[ChatEvent]:
        """Text deltas, then one `ChatFinished`. Raises `EngineError`."""
        ...


class Snapshots(Protocol):
    """Snapshots of one workspace: read-only facts and bytes."""

    def take(self) -> SnapshotId:
        """Record the workspace as it is now. Raises `SnapshotRefused`, `StoreError`."""
        ...

    def entries(self, snapshot: SnapshotId) -> Mapping[str, Entry]:
        """All paths of a snapshot."""
        ...

    def read(self, snapshot: SnapshotId, path: str) -> bytes:
        """A file's bytes. Raises `KeyError` if the snapshot has no such file."""
        ...

    def candidate(self, candidate: Candidate) -> SnapshotId:
        """Record base plus changes, without looking at the workspace.

        Raises `InvalidEdit` where a change cannot apply: a path that escapes, runs through a
        symlink, names a directory, or deletes what is not there.
        """
        ...

    def changes_between(self, old: SnapshotId, new: SnapshotId) -> tuple[Change, ...]:
        """The changes that turn one snapshot into another, in order of path."""
        ...

    def drift(self, snapshot: SnapshotId) -> tuple[str, ...]:
        """Paths where the live workspace differs from the snapshot, from a full stat scan."""
        ...


class Promoter(Protocol):
    """Writes a verified candidate into the workspace, all of it or nothing."""

    def promote(
        self,
        candidate: Candidate,
        result: SnapshotId,
        bundle_id: str,
        commit: Callable[[], None],
    ) -> None:
        """Exchange the files under a journal; `commit` makes the ledger's transaction.

        `bundle_id` is what that transaction records, so that recovery can ask for it.
        A crash before `commit` has returned leaves the old bytes after recovery, one after it the
        new bytes. Raises `StaleBase` (the user's edit won; nothing changed) or `PromotionFailed`.
        """
        ...


class Stage(Protocol):
    """A candidate laid out for the commands; lives as long as its context."""

    @property
    def root(self) -> Path:
        """Where the commands see the workspace."""
        ...

    @property
    def scratch(self) -> Path:
        """A private host folder for what running commands needs; removed with the stage."""
        ...

    def enter(self, argv: Sequence[str]) -> tuple[str, ...]:
        """The argv that, started on the host, runs `argv` where `root` holds the candidate."""
        ...


class Stager(Protocol):
    """One rung of the staging ladder, for one workspace."""

    @property
    def rung(self) -> str:
        """The rung's name: `overlay` or `copy`."""
        ...

    def stage(self, changes: tuple[Change, ...]) -> AbstractContextManager[Stage]:
        """Lay out workspace plus changes. Raises `StagingUnavailable`."""
        ...


class Verifier(Protocol):
    """Runs the contract in a staging copy."""

    @property
    def sandbox_tier(self) -> str:
        """The isolation tier in use."""
        ...

    @property
    def staging_rung(self) -> str:
        """The rung of the staging ladder in use."""
        ...

    def measure(
        self, changes: tuple[Change, ...], only: frozenset[str] | None, cancel: Cancel
    ) -> Measurement:
        """One run of the contract (or of the obligations in `only`) on workspace plus changes.

        No changes measure the incumbent. Raises `StaleBase` where the workspace has moved since
        it was last looked at (`Snapshots.take`, `Snapshots.drift`), so what is returned was
        measured on exactly that; `SandboxUnavailable`, `StagingUnavailable`.
        """
        ...


@dataclass(frozen=True, slots=True)
class ProposalContext:
    """All that a proposal is made from.

    `failing` are the incumbent's unsatisfied checks with excerpts; `history` the evidence of the
    attempts since the last commit, oldest first, and `answers` what the model wrote in each of
    them (empty where it wrote nothing); `seed` is derived from run, attempt, candidate.
    """

    task: str
    base: SnapshotId
    failing: tuple[CheckOutcome, ...]
    memory: ExplorationMemory
    history: tuple[Evidence, ...]
    attempt: int
    seed: int
    max_tokens: int
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """The prompt is ready: what is asked for, in which form, about what."""

    form: str
    target: str
    prompt_hash: str
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Proposal:
    """A finished answer. `text` is what a reader sees, with any prefilled part in front.

    `result` is the candidate or the error that says why the answer is none.
    """

    text: str
    finish_reason: str
    usage: Usage
    timings: Timings
    result: Candidate | InvalidAnswer


@dataclass(frozen=True, slots=True)
class InvalidAnswer:
    """Why an answer is no candidate; `nearest` is the closest text where a SEARCH missed."""

    problem: str
    path: str = ""
    nearest: str = ""


class Proposer(Protocol):
    """Asks the model for a candidate."""

    def propose(
        self, context: ProposalContext, cancel: Cancel
    ) -> Generator[Asked | str, None, Proposal]:
        """Yields one `Asked`, then pieces of the answer's text; returns the proposal.

        Raises `EngineError`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Approval:
    """The user's answer to a verified candidate; a reason of a rejection becomes evidence."""

    approved: bool
    reason: str = ""


class Approver(Protocol):
    """Whoever lets a verified candidate through."""

    def approve(self, transition: Transition, diff: str, warnings: tuple[str, ...]) -> Approval:
        """Block until there is an answer."""
        ...


class Ledger(Protocol):
    """The append-only record."""

    def head(self) -> str:
        """The id of the workspace's current bundle, empty if there is none."""
        ...

    def bundles(self) -> tuple[CertifiedBundle, ...]:
        """Every bundle, in the order of their commits."""
        ...

    def append(self, run: str, event: Event) -> None:
        """Add one event to the hash chain, durably."""
        ...

    def commit(self, run: str, bundle: CertifiedBundle, event: Event) -> None:
        """Add the bundle, move the head to it and append the event, in one transaction."""
        ...


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What the terminal shows at all times. `model` is the reference, as the user gave it."""

    root: str
    model: str
    sandbox_tier: str
    staging_rung: str
    contract_path: str
    trusted: bool
    obligations: tuple[str, ...]


class Session(Protocol):
    """One workspace, as the terminal app sees it. All calls block; run them off the UI thread."""

    def facts(self) -> SessionFacts:
        """What is known without running anything."""
        ...

    def verify(self, cancel: Cancel) -> Iterator[Event]:
        """Measure the workspace as it is: notices, then one `IncumbentMeasured`."""
        ...

    def run(self, task: str, approver: Approver, cancel: Cancel) -> Iterator[Event]:
        """One run of the controller, ending with `RunEnded`."""
        ...

    def recorded(self) -> tuple[Event, ...]:
        """The events of earlier runs on this workspace, oldest first, without deltas."""
        ...

    def watch(self, changed: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `changed` (from another thread, coalesced) when files may have changed: a hint."""
        ...
