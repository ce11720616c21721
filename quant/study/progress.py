"""How far a measurement is, with numbers that are good enough to watch."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import numpy as np

from quant.losses.statistics import FIELDS, Values
from quant.report.data import Estimate


@dataclass(frozen=True, slots=True)
class QuantProgress:
    """One quant so far; `problem` says why it was stopped, empty if it was not."""

    name: str
    file_size: int
    chunks: int
    kld: Estimate | None
    ppl_ratio: Estimate | None
    same_top: Estimate | None
    problem: str


@dataclass(frozen=True, slots=True)
class Progress:
    """A measurement so far. `done` of `of` are passes of a chunk through a model, in the whole
    study; `seconds_left` is `None` while it is not known."""

    title: str
    done: int
    of: int
    seconds_left: float | None
    quants: tuple[QuantProgress, ...]


class Running:
    """Sums over the chunks of one quant, in f64. Safe to use from several threads."""

    def __init__(self, name: str, file_size: int) -> None:
        self._name, self._size = name, file_size
        self._lock = threading.Lock()
        self._chunks, self._count, self._problem = 0, 0, ""
        self._sums = np.zeros(4)
        self._squares = np.zeros(4)

    def add(self, losses: Values) -> None:
        """Take the losses of a chunk in."""
        each = dict(zip(FIELDS, losses.astype(np.float64), strict=True))
        wanted = np.stack(
            [each["kld"], each["nll"] - each["base_nll"], each["same_top"], each["delta_p"]]
        )
        with self._lock:
            self._chunks += 1
            self._count += wanted.shape[1]
            self._sums += wanted.sum(axis=1)
            self._squares += np.square(wanted).sum(axis=1)

    def stop(self, problem: str) -> None:
        """There will be no more."""
        with self._lock:
            self._problem = problem

    def progress(self) -> QuantProgress:
        """What is known now; errors take tokens for independent."""
        with self._lock:
            kld, ratio, top = None, None, None
            if self._count > 1:
                means = self._sums / self._count
                spread = np.maximum(0, self._squares / self._count - means**2) / (self._count - 1)
                errors = np.sqrt(spread)
                kld, top = (Estimate(float(means[at]), float(errors[at])) for at in (0, 2))
                value = math.exp(min(700.0, float(means[1])))
                ratio = Estimate(value, value * float(errors[1]))
            return QuantProgress(
                self._name, self._size, self._chunks, kld, ratio, top, self._problem
            )


class Clock:
    """How long the rest will take, from how long what was done took; times in seconds."""

    def __init__(self, of: int, done: int, now: float) -> None:
        """`done` of `of` were done before this run began at `now`."""
        self._of, self._before, self._start = of, done, now
        self._done = done

    def step(self, count: int = 1) -> None:
        """So many more are done, or will not be done at all."""
        self._done += count

    def left(self, now: float) -> float | None:
        """Seconds for the rest, `None` before anything is done."""
        fresh = self._done - self._before
        if fresh <= 0:
            return None
        return max(0.0, (now - self._start) / fresh * (self._of - self._done))

    @property
    def counts(self) -> tuple[int, int]:
        """Done, and all."""
        return self._done, self._of


def told(seconds: float | None) -> str:
    """A duration as people say it."""
    if seconds is None:
        return "time left unknown"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min left"
    return f"{minutes} min {rest:02} s left" if minutes else f"{rest} s left"
