"""Groups of chunks on their way through models: decoded step by step, scored as they come.

Several streams work at the same time, each on a group of its own and each with a context of its own
in every model: while one scores, another decodes. A leader packs its logits, followers are held
against them; without a leader the rows come from where they were kept.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np

from quant.losses.scoring import Packed, Tokens
from quant.losses.statistics import FIELDS, Values
from quant.running.order import Run
from quant.running.passes import NotFinite, Pass
from quant.running.rows import Rows
from quant.running.shape import Shape, Step, steps
from veriloop_tui.core.ports import Cancel
from veriloop_tui.errors import BaseNotFinite, Cancelled, PassFailed

Deliver = Callable[[int, int, Values, float], None]
Stopped = Callable[[int, str], None]


@dataclass(frozen=True, slots=True)
class Text:
    """`tokens` of shape (chunks, n_ctx); the first of each gives way to `bos` in decoding."""

    tokens: Tokens
    bos: int | None

    def fed(self, chunk: int, start: int, stop: int) -> list[int]:
        """What is decoded at positions of a chunk."""
        found: list[int] = self.tokens[chunk, start:stop].tolist()
        if start == 0 and self.bos is not None:
            found[0] = self.bos
        return found

    def targets(self, chunk: int, step: Step) -> list[int]:
        """The tokens that a step's kept rows are to predict."""
        first = step.first_kept + 1
        found: list[int] = self.tokens[chunk, first : first + step.kept].tolist()
        return found


@dataclass(frozen=True, slots=True)
class Works:
    """What does not change from group to group.

    `region` has the packed rows and the losses of each stream. `deliver` is told a model's number,
    a chunk, its losses and the seconds of decoding it; `stopped` a number and why. Both are called
    from several threads. `at_once`: how many may decode at the same time, 0 for all streams.
    """

    shape: Shape
    text: Text
    region: Sequence[tuple[Packed, Values]]
    threads: int
    at_once: int
    floor: float
    deliver: Deliver
    stopped: Stopped
    cancel: Cancel


@dataclass(frozen=True, slots=True)
class Member:
    """A model in a phase; `wants` tells whether a chunk of it is still to be measured."""

    number: int
    name: str
    run: Pass
    wants: Callable[[int], bool]


@dataclass(slots=True)
class _Done:
    """What a group came to in one model so far: losses by chunk, seconds of decoding."""

    losses: Values
    seconds: float = 0.0


class Conveyor:
    """One phase: groups through a leader, if there is one, and followers."""

    def __init__(
        self, works: Works, leader: Member | None, followers: Sequence[Member], rows: Rows | None
    ) -> None:
        """`rows` keeps what the leader packs, or has what it packed before."""
        self._works, self._leader, self._rows = works, leader, rows
        self._followers = {one.number: one for one in followers}
        self._lock = threading.Lock()
        self._active = 0
        self._broken = threading.Event()
        self._permit: AbstractContextManager[object] = (
            threading.Semaphore(works.at_once) if works.at_once else nullcontext()
        )

    def carry(self, groups: Sequence[range]) -> None:
        """Run all groups.

        Raises `BaseNotFinite`, `PassFailed` for the leader, `Cancelled`, and what `deliver` does.
        """
        todo = deque(group for group in groups if self._wanted(group))
        streams = min(len(self._works.region), len(todo))
        self._active = streams
        if not streams:
            return
        with ThreadPoolExecutor(streams) as pool:
            running = [pool.submit(self._serve, stream, todo) for stream in range(streams)]
        problems = [one.exception() for one in running]
        # What broke one stream makes the others give up; the cause comes first.
        for problem in sorted(filter(None, problems), key=lambda one: isinstance(one, Cancelled)):
            raise problem

    def _wanted(self, group: range) -> bool:
        models = [*self._followers.values(), *([self._leader] if self._leader else [])]
        return any(one.wants(chunk) for one in models for chunk in group)

    def _serve(self, stream: int, todo: deque[range]) -> None:
        try:
            while not self._broken.is_set():
                try:
                    group = todo.popleft()
                except IndexError:
                    return
                self._group(stream, group)
        except BaseException:
            self._broken.set()
            raise
        finally:
            with self._lock:
                self._active -= 1

    def _group(self, stream: int, group: range) -> None:
        """All steps of a group, through all models that want one of its chunks."""
        shape, leader = self._works.shape, self._leader
        with self._lock:
            models = [
                one for one in self._followers.values() if any(one.wants(chunk) for chunk in group)
            ]
        if leader is not None:
            models.insert(0, leader)
        done = {
            one.number: _Done(np.empty((len(group), len(FIELDS), shape.rows), np.float32))
            for one in models
        }
        for step in steps(shape, len(group)):
            if leader is None:
                self._fetch(stream, group, step)
            for one in [one for one in models if self._takes_part(one)]:
                self._step(stream, group, step, one, done[one.number])
                if one is leader:
                    self._keep(stream, group, step)
        if leader is not None and self._rows is not None:
            for chunk in group:
                self._rows.finish(chunk)
        for one in [one for one in models if self._takes_part(one)]:
            found = done[one.number]
            for at, chunk in enumerate(group):
                if one.wants(chunk):
                    share = found.seconds / len(group)
                    self._works.deliver(one.number, chunk, found.losses[at], share)

    def _takes_part(self, model: Member) -> bool:
        return model is self._leader or model.number in self._followers

    def _step(self, stream: int, group: range, step: Step, model: Member, done: _Done) -> None:
        if self._broken.is_set() or self._works.cancel.is_set():
            raise Cancelled
        works, leads = self._works, model is self._leader
        outputs = max(0, step.stop - max(step.start, works.shape.first))
        order = Run(
            stream=stream,
            clear=step.start == 0,
            start=step.start,
            tokens=[works.text.fed(chunk, step.start, step.stop) for chunk in group],
            outputs=outputs,
            targets=[works.text.targets(chunk, step) for chunk in group] if step.kept else [],
            work="pack" if leads else "score",
            floor=works.floor,
            threads=max(1, works.threads // (works.at_once or max(1, self._active))),
        )
        try:
            found = model.run.run(order, self._permit)
        except PassFailed as problem:
            if leads:
                raise
            self._drop(model.number, str(problem))
            return
        if isinstance(found, NotFinite):
            chunk = group[found.sequence] + 1
            position = step.first_kept + found.row
            if leads:
                raise BaseNotFinite(model.name, chunk, position)
            self._drop(model.number, f"not finite in chunk {chunk} at position {position}")
            return
        done.seconds += found
        if step.kept:
            first = step.first_kept - works.shape.first
            count = len(group) * step.kept
            whole = works.region[stream][1][:, :count].reshape(len(FIELDS), len(group), step.kept)
            done.losses[:, :, first : first + step.kept] = whole.transpose(1, 0, 2)

    def _drop(self, number: int, problem: str) -> None:
        with self._lock:
            there = self._followers.pop(number, None)
        # Both streams may meet the same fault.
        if there is not None:
            self._works.stopped(number, problem)

    def _keep(self, stream: int, group: range, step: Step) -> None:
        if self._rows is None:
            return
        for chunk, packed in self._parts(stream, group, step):
            self._rows.put(chunk, step.first_kept - self._works.shape.first, packed)

    def _fetch(self, stream: int, group: range, step: Step) -> None:
        assert self._rows is not None
        for chunk, packed in self._parts(stream, group, step):
            self._rows.get(chunk, step.first_kept - self._works.shape.first, packed)

    def _parts(self, stream: int, group: range, step: Step) -> list[tuple[int, Packed]]:
        """Each chunk's packed rows of a step, as they lie in the stream's memory."""
        packed = self._works.region[stream][0]
        if not step.kept:
            return []
        return [
            (chunk, packed[at * step.kept : (at + 1) * step.kept]) for at, chunk in enumerate(group)
        ]
