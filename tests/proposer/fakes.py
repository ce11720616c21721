"""Hand-written fakes of the ports that a proposer needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from threading import Event

from veriloop_tui.core.chat import (
    ChatEvent,
    ChatFinished,
    ChatRequest,
    FinishReason,
    ModelFacts,
    TextDelta,
    Timings,
    Usage,
)
from veriloop_tui.core.memory import ExplorationMemory
from veriloop_tui.core.obligation import CheckId, CheckKind, CheckOutcome
from veriloop_tui.core.ports import Cancel, ProposalContext
from veriloop_tui.core.snapshot import Candidate, Change, Entry, EntryKind, SnapshotId
from veriloop_tui.proposer.workspace import Workspace

BASE = SnapshotId("base")
NEVER = Event()


def protects(path: str) -> bool:
    """Tests and the contract."""
    return path.startswith("tests/") or path == "veriloop.toml"


def workspace(files: Mapping[str, bytes]) -> Workspace:
    """A workspace of just these files."""
    return Workspace(frozenset(files), files.get, protects)


def failing(name: str, excerpt: str = "", group: str = "") -> CheckOutcome:
    """A failing test of the obligation `tests`."""
    return CheckOutcome(CheckId("tests", CheckKind.TEST, name), 1, group=group, excerpt=excerpt)


def context(
    *outcomes: CheckOutcome,
    task: str = "",
    attempt: int = 1,
    memory: ExplorationMemory | None = None,
) -> ProposalContext:
    """A context without history."""
    return ProposalContext(
        task, BASE, outcomes, memory or ExplorationMemory(), (), attempt, 7, 4096
    )


@dataclass
class FakeSnapshots:
    """One snapshot; `links` are the paths that are symbolic links."""

    files: Mapping[str, bytes]
    links: frozenset[str] = frozenset()

    def take(self) -> SnapshotId:
        return BASE

    def entries(self, snapshot: SnapshotId) -> Mapping[str, Entry]:
        assert snapshot == BASE
        return {path: self._entry(path) for path in (*self.files, *self.links)}

    def _entry(self, path: str) -> Entry:
        kind: EntryKind = "symlink" if path in self.links else "file"
        return Entry(path, kind, 0o755, "", 0)

    def read(self, snapshot: SnapshotId, path: str) -> bytes:
        assert snapshot == BASE
        return self.files[path]

    def candidate(self, candidate: Candidate) -> SnapshotId:
        return SnapshotId(repr(candidate))

    def changes_between(self, old: SnapshotId, new: SnapshotId) -> tuple[Change, ...]:
        return ()

    def drift(self, snapshot: SnapshotId) -> tuple[str, ...]:
        return ()


@dataclass
class FakeModel:
    """Answers every request with `pieces`, and keeps the requests."""

    pieces: tuple[str, ...]
    parameters: int = 27_000_000_000
    n_ctx: int = 32_768
    finish: FinishReason = "stop"
    requests: list[ChatRequest] = field(default_factory=list)

    def facts(self) -> ModelFacts:
        return ModelFacts(
            "fake", "none", "", 0, self.parameters, "Q6_K", 6.5, self.n_ctx, "digest", ""
        )

    def complete(self, request: ChatRequest, cancel: Cancel) -> Iterator[ChatEvent]:
        self.requests.append(request)
        yield from map(TextDelta, self.pieces)
        yield ChatFinished(self.finish, Usage(10, 3, 4), Timings(1.0, 2.0))
