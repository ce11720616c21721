"""Measured chunks turned into progress that people watch."""

from __future__ import annotations

import threading
from collections.abc import Callable

from quant.running.measure import BASE, Entrant, Field
from quant.study.progress import Clock, Progress, QuantProgress, Running


class Watcher:
    """Turns measured chunks into progress."""

    def __init__(
        self,
        title: str,
        field: Field,
        clock: Clock,
        now: Callable[[], float],
        watch: Callable[[Progress], None],
    ) -> None:
        self._title, self._field, self._clock = title, field, clock
        self._now, self._watch = now, watch
        self._lock = threading.Lock()
        self._rows = [Running(one.name, _size(one)) for one in field.quants]
        for row, one in zip(self._rows, field.quants, strict=True):
            for chunk in sorted(one.record.chunks):
                row.add(one.record.losses(chunk))

    def told(self, number: int, chunk: int) -> None:
        """A chunk of a model is measured; a negative chunk: there will be no more."""
        with self._lock:
            left = 1
            if number != BASE:
                quant, row = self._field.quants[number], self._rows[number]
                if chunk >= 0:
                    row.add(quant.record.losses(chunk))
                else:
                    row.stop(self._field.problems[number])
                    left = self._field.ground.chunks - len(quant.record.chunks)
            self._clock.step(left)
            done, of = self._clock.counts
            rows: tuple[QuantProgress, ...] = tuple(row.progress() for row in self._rows)
            self._watch(Progress(self._title, done, of, self._clock.left(self._now()), rows))


def _size(entrant: Entrant) -> int:
    return entrant.path.stat().st_size
