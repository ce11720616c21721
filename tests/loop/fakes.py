"""Hand-written fakes of the ports: a workspace in a dictionary, a verifier in a function."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field

from veriloop_tui.core.bundle import CertifiedBundle
from veriloop_tui.core.canonical import digest
from veriloop_tui.core.chat import Sampling, Timings, Usage
from veriloop_tui.core.event import Event
from veriloop_tui.core.obligation import (
    BudgetLimits,
    CheckId,
    CheckKind,
    CheckOutcome,
    CommandRecord,
    Contract,
    Measurement,
    Obligation,
    Ranked,
    Unrankable,
)
from veriloop_tui.core.ports import (
    Approval,
    Asked,
    Cancel,
    InvalidAnswer,
    Proposal,
    ProposalContext,
)
from veriloop_tui.core.snapshot import Candidate, Change, Delete, Entry, SnapshotId, Write
from veriloop_tui.core.transition import Transition
from veriloop_tui.errors import InvalidEdit, StaleBase

Files = dict[str, bytes]
CONTRACT = Contract((Obligation("t", ("true",), "junit"),), ("tests/",), BudgetLimits(attempts=10))


def applied(files: Mapping[str, bytes], changes: tuple[Change, ...]) -> Files:
    after = dict(files)
    for change in changes:
        if isinstance(change, Write):
            after[change.path] = change.content
        else:
            del after[change.path]
    return after


class FakeWorkspace:
    """`Snapshots` and `Promoter` over a dictionary that a test may edit at any time."""

    def __init__(self, files: Files) -> None:
        self.live = dict(files)
        self.kept: dict[SnapshotId, Files] = {}
        self.seen = dict(files)
        self.before_promotion: Callable[[], None] = lambda: None

    def _keep(self, files: Files) -> SnapshotId:
        name = SnapshotId(digest(files))
        self.kept[name] = dict(files)
        return name

    def take(self) -> SnapshotId:
        self.seen = dict(self.live)
        return self._keep(self.live)

    def entries(self, snapshot: SnapshotId) -> Mapping[str, Entry]:
        return {
            path: Entry(path, "file", 0o644, digest(data), len(data))
            for path, data in self.kept[snapshot].items()
        }

    def read(self, snapshot: SnapshotId, path: str) -> bytes:
        return self.kept[snapshot][path]

    def candidate(self, candidate: Candidate) -> SnapshotId:
        if any(path.startswith("/") or ".." in path for path in candidate.paths):
            raise InvalidEdit("the path leaves the workspace", candidate.paths[0])
        return self._keep(applied(self.kept[candidate.base], candidate.changes))

    def changes_between(self, old: SnapshotId, new: SnapshotId) -> tuple[Change, ...]:
        before, after = self.kept[old], self.kept[new]
        return tuple(
            Write(path, after[path]) if path in after else Delete(path)
            for path in sorted(before.keys() | after.keys())
            if before.get(path) != after.get(path)
        )

    def drift(self, snapshot: SnapshotId) -> tuple[str, ...]:
        self.seen = dict(self.live)
        base = self.kept[snapshot]
        paths = base.keys() | self.live.keys()
        return tuple(sorted(p for p in paths if base.get(p) != self.live.get(p)))

    def promote(
        self,
        candidate: Candidate,
        result: SnapshotId,
        bundle_id: str,
        commit: Callable[[], None],
    ) -> None:
        self.before_promotion()
        moved = set(self.drift(candidate.base)) & set(candidate.paths)
        if moved:
            raise StaleBase(tuple(moved))
        commit()
        self.live = applied(self.live, candidate.changes)


def passing(files: Files) -> Measurement:
    """Every `NAME = ok` line passes, every other line is a failing check."""
    outcomes: list[CheckOutcome] = []
    for line in files.get("app.py", b"").decode().splitlines():
        name, _, value = line.partition(" = ")
        failed = int(value != "ok")
        outcomes.append(
            CheckOutcome(CheckId("t", CheckKind.TEST, name), failed, excerpt="E" * failed)
        )
    run = tuple(outcomes)
    record = CommandRecord("t", ("true",), 0, 0.5, "", "", run)
    return Ranked((run,), (frozenset({"t"}),), (record,))


class FakeVerifier:
    """Measures with a function of the files; counts its runs."""

    sandbox_tier = "fake"
    staging_rung = "fake"

    def __init__(
        self, workspace: FakeWorkspace, measured: Callable[[Files], Measurement] = passing
    ) -> None:
        self.workspace, self.measured = workspace, measured
        self.runs = 0
        self.during: Callable[[], None] = lambda: None

    def measure(
        self, changes: tuple[Change, ...], only: frozenset[str] | None, cancel: Cancel
    ) -> Measurement:
        self.runs += 1
        measured = self.measured(applied(self.workspace.live, changes))
        if changes:
            self.during()
        if self.workspace.live != self.workspace.seen:
            raise StaleBase(())
        return measured


def unrankable(_: Files) -> Measurement:
    return Unrankable("t", "ran out of time")


Answer = Candidate | InvalidAnswer | Exception | tuple[Change, ...]


class FakeProposer:
    """Answers with a list, the last entry for ever; changes are put on the current base."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.contexts: list[ProposalContext] = []

    def propose(
        self, context: ProposalContext, cancel: Cancel
    ) -> Generator[Asked | str, None, Proposal]:
        self.contexts.append(context)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        yield Asked("fake", "app.py", digest(context.seed), Sampling())
        yield "an "
        yield "answer"
        if isinstance(answer, Exception):
            raise answer
        result = Candidate(context.base, answer) if isinstance(answer, tuple) else answer
        return Proposal("an answer", "stop", Usage(100, 20, 80), Timings(1.0, 2.0), result)


@dataclass
class FakeLedger:
    """Keeps what it is told, in order."""

    events: list[Event] = field(default_factory=list)
    kept: list[CertifiedBundle] = field(default_factory=list)

    def head(self) -> str:
        return self.kept[-1].bundle_id if self.kept else ""

    def bundles(self) -> tuple[CertifiedBundle, ...]:
        return tuple(self.kept)

    def append(self, run: str, event: Event) -> None:
        self.events.append(event)

    def commit(self, run: str, bundle: CertifiedBundle, event: Event) -> None:
        self.kept.append(bundle)
        self.events.append(event)


@dataclass
class FakeApprover:
    """Says the same to every candidate, after doing something."""

    approval: Approval
    asked: list[tuple[str, ...]] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None

    def approve(self, transition: Transition, diff: str, warnings: tuple[str, ...]) -> Approval:
        self.asked.append(warnings)
        self.meanwhile()
        return self.approval


class FakeClock:
    """Each look at the clock takes a tenth of a second."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        self.time += 0.1
        return self.time

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.slept()


def never() -> threading.Event:
    return threading.Event()
