"""Which states of a recurrent memory are kept to come back to. Pure; the states are bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

MAX_CHECKPOINTS: Final = 16
MAX_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The recurrent state after the first `position` tokens of a sequence.

    `hidden` is the last token's hidden row, which a draft head needs; empty without one.
    """

    position: int
    state: bytes
    hidden: bytes = b""


class Checkpoints:
    """Checkpoints of one sequence by position, bounded in number and in bytes."""

    def __init__(self, max_count: int = MAX_CHECKPOINTS, max_bytes: int = MAX_BYTES) -> None:
        self._max_count, self._max_bytes = max_count, max_bytes
        self._kept: list[Checkpoint] = []

    @property
    def kept(self) -> tuple[Checkpoint, ...]:
        """All of them, the earliest position first."""
        return tuple(self._kept)

    def add(self, position: int, make: Callable[[], Checkpoint]) -> None:
        """Keep the state at `position`, which is at or after every other one.

        Over the bounds, the one goes whose neighbours are closest together; the newest stays.
        """
        if self._kept and self._kept[-1].position == position:
            return
        self._kept.append(make())
        while len(self._kept) > 1 and self._over():
            # Losing one costs the tokens from its predecessor up to it, once it is wanted.
            before = [0, *(one.position for one in self._kept)]
            costs = [before[i + 1] - before[i] for i in range(len(self._kept) - 1)]
            del self._kept[costs.index(min(costs))]

    def adopt(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Hold these, the earliest first, instead of what was held."""
        self._kept = list(checkpoints)

    def best(self, limit: int) -> Checkpoint | None:
        """The last one at a position of at most `limit`."""
        return next((one for one in reversed(self._kept) if one.position <= limit), None)

    def forget_after(self, position: int) -> None:
        """Drop those beyond `position`: the tokens there are not the sequence's any more."""
        self._kept = [one for one in self._kept if one.position <= position]

    def _over(self) -> bool:
        size = sum(len(one.state) + len(one.hidden) for one in self._kept)
        return len(self._kept) > self._max_count or size > self._max_bytes
