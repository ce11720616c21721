"""A base and its quants measured on one ground, and all of it kept in records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from quant.losses.logits_file import LogitsRows, check_header, check_whole, read_header
from quant.losses.statistics import Values
from quant.running.conveyor import Conveyor, Deliver, Member, Stopped, Text, Works
from quant.running.garage import Garage
from quant.running.layout import Layout
from quant.running.logits_store import GrowingRows
from quant.running.order import Context, Open, Region
from quant.running.rows import KeptRows, Rows
from quant.running.shape import steps
from quant.running.shared import SharedMemory
from quant.study.record import Record
from quant.study.sidecar import Contestant, Ground
from veriloop_tui.core.ports import Cancel
from veriloop_tui.errors import EngineStartFailed, PassFailed


@dataclass(frozen=True, slots=True)
class Entrant:
    """One model in a measurement: its first file, its settings, its losses.

    `key` tells it apart from all others, and a base from the same file as a quant; `name` is a
    label.
    """

    key: str
    name: str
    path: Path
    contestant: Contestant
    record: Record


@dataclass(frozen=True, slots=True)
class Field:
    """All that takes part. `problems` of quants that were stopped, by their number, are filled."""

    ground: Ground
    text: Text
    base: Entrant
    quants: Sequence[Entrant]
    problems: dict[int, str] = field(default_factory=dict)

    def wants(self, number: int, chunk: int) -> bool:
        """Whether a quant is still to be measured on a chunk."""
        return number not in self.problems and not self.quants[number].record.has(chunk)

    def wanted(self, chunk: int) -> bool:
        """Whether any quant is."""
        return any(self.wants(number, chunk) for number in range(len(self.quants)))


@dataclass(frozen=True, slots=True)
class Ways:
    """What measuring is done with. `logits` is where the base's rows are kept, in file mode."""

    layout: Layout
    garage: Garage
    shared: SharedMemory
    logits: Path
    told: Callable[[int, int], None]
    cancel: Cancel


BASE = -1


def measure(field: Field, ways: Ways) -> None:
    """Measure all chunks that the records lack; `ways.told` is called with a model and a chunk.

    Raises `BaseNotFinite`, `EngineStartFailed` and `PassFailed` for the base, `DiskTooSmall`,
    `RecordInvalid`, `LogitsFileInvalid`, `Cancelled`.
    """
    ground, layout = field.ground, ways.layout
    groups = ground.shape.groups(ground.chunks)
    with ExitStack() as stack:
        measuring = _Measuring(field, ways)
        match layout.mode:
            case "lockstep":
                measuring.lockstep(groups)
            case "windows":
                measuring.by_windows(groups)
            case "file":
                measuring.by_file(groups, stack)


class _Measuring:
    def __init__(self, field: Field, ways: Ways) -> None:
        self._field, self._ways = field, ways
        ground, streams = field.ground, ways.layout.streams
        self._region = Region(ground.shape.step_rows, ground.vocabulary)
        memory = ways.shared.resized(self._region.size * streams)
        gpu = ground.backend.gpu and ground.gpu_layers != 0
        deliver: Deliver = self._deliver
        stopped: Stopped = self._stopped
        self._lock = threading.Lock()
        self._works = Works(
            shape=ground.shape,
            text=field.text,
            region=[
                (self._region.packed(memory, at), self._region.losses(memory, at))
                for at in range(streams)
            ],
            threads=ground.threads,
            at_once=1 if gpu else 0,
            floor=ground.floor,
            deliver=deliver,
            stopped=stopped,
            cancel=ways.cancel,
        )

    def lockstep(self, groups: Sequence[range]) -> None:
        field = self._field
        if not any(self._needs_base(chunk) for group in groups for chunk in group):
            return
        wanted = [
            number
            for number in range(len(field.quants))
            if any(field.wants(number, chunk) for group in groups for chunk in group)
        ]
        with ThreadPoolExecutor() as pool:
            loading = [pool.submit(self._quant, number) for number in wanted]
            base = self._base(self._needs_base)
            followers = [one for loaded in loading if (one := loaded.result()) is not None]
        self._carry(base, followers, None, groups)

    def by_windows(self, groups: Sequence[range]) -> None:
        ground = self._field.ground
        per_window = max(1, self._ways.layout.window // ground.shape.sequences)
        for at in range(0, len(groups), per_window):
            window = groups[at : at + per_window]
            if not any(self._needs_base(chunk) for group in window for chunk in group):
                continue
            rows = KeptRows(ground.vocabulary, ground.shape.rows)
            self._alone(BASE)
            self._carry(self._base(self._needs_base), (), rows, window)
            self._quants_alone(rows, window)

    def by_file(self, groups: Sequence[range], stack: ExitStack) -> None:
        field, ground, path = self._field, self._field.ground, self._ways.logits
        wanted = any(field.wanted(chunk) for group in groups for chunk in group)
        if not wanted and (field.quants or path.exists()):
            return
        if not path.exists():
            self._write_file(path, groups)
        header = read_header(path)
        # It may be anybody's: with another text or vocabulary all numbers would be wrong.
        check_header(path, header, ground.vocabulary, field.text.tokens)
        check_whole(path, header, ground.chunks)
        rows = stack.enter_context(LogitsRows(path, header, write=False))
        self._quants_alone(rows, groups)

    def _write_file(self, path: Path, groups: Sequence[range]) -> None:
        ground, tokens = self._field.ground, self._field.text.tokens
        with GrowingRows(path, ground.vocabulary, tokens, ground.key) as rows:
            self._alone(BASE)
            record = self._field.base.record
            base = self._base(lambda chunk: not (rows.has(chunk) and record.has(chunk)))
            self._carry(base, (), rows, groups)
            rows.publish()

    def _quants_alone(self, rows: Rows, groups: Sequence[range]) -> None:
        field = self._field
        for number in range(len(field.quants)):
            if any(field.wants(number, chunk) for group in groups for chunk in group):
                self._alone(number)
                quant = self._quant(number)
                self._carry(None, [quant] if quant is not None else [], rows, groups)

    def _carry(
        self,
        leader: Member | None,
        followers: Sequence[Member],
        rows: Rows | None,
        groups: Sequence[range],
    ) -> None:
        Conveyor(self._works, leader, followers, rows).carry(groups)

    def _needs_base(self, chunk: int) -> bool:
        return not self._field.base.record.has(chunk) or self._field.wanted(chunk)

    def _base(self, wants: Callable[[int], bool]) -> Member:
        base = self._field.base
        run = self._ways.garage.opened(base.key, base.path, self._open(base))
        return Member(BASE, base.name, run, wants)

    def _quant(self, number: int) -> Member | None:
        """The quant, loaded; `None` if it cannot be, which is noted."""
        quant = self._field.quants[number]
        try:
            run = self._ways.garage.opened(quant.key, quant.path, self._open(quant))
        except (EngineStartFailed, PassFailed) as problem:
            self._stopped(number, str(problem))
            return None
        return Member(number, quant.name, run, lambda chunk: self._field.wants(number, chunk))

    def _alone(self, number: int) -> None:
        entrant = self._field.base if number == BASE else self._field.quants[number]
        self._ways.garage.clear(keep=entrant.key)

    def _open(self, entrant: Entrant) -> Open:
        ground, streams = self._field.ground, self._ways.layout.streams
        context = context_of(ground, entrant.contestant, streams)
        return Open(streams, ground.shape.step_rows, ground.vocabulary, context)

    def _deliver(self, number: int, chunk: int, losses: Values, seconds: float) -> None:
        entrant = self._field.base if number == BASE else self._field.quants[number]
        entrant.record.add(chunk, losses, seconds)
        self._ways.told(number, chunk)

    def _stopped(self, number: int, problem: str) -> None:
        with self._lock:
            self._field.problems[number] = problem
        self._ways.told(number, -1)


def context_of(ground: Ground, contestant: Contestant, streams: int) -> Context:
    """The context of one stream."""
    shape = ground.shape
    outputs = max(
        (step.stop - max(step.start, shape.first)) * count
        for count in {shape.sequences, 1}
        for step in steps(shape, count)
    )
    return Context(
        n_ctx=shape.n_ctx,
        n_ubatch=shape.n_ubatch,
        sequences=shape.sequences,
        outputs=max(1, outputs),
        threads=max(1, ground.threads // streams),
        type_k=contestant.type_k,
        type_v=contestant.type_v,
        flash_attention=contestant.flash_attention,
    )
