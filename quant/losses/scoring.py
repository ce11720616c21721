"""Logits made into losses of single tokens, row by row, in arrays that are made once.

The base's row is packed as llama-perplexity keeps it in its files, so that a comparison in memory
gives the same numbers as one by way of a file: f32 scale, f32 lowest log-probability, and a u16
per token, padded to an even count. Operations on single values follow llama-perplexity's in kind
and order, since both round to f32 after each.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from quant.losses.statistics import FIELDS, Values

Packed = NDArray[np.uint16]
Tokens = NDArray[np.int32]

FLOOR: Final = 16.0
DEEP_FLOOR: Final = 24.0
_LOWEST: Final = np.float32(-16)
_STEPS: Final = np.float32(65535)
PACKED_HEAD: Final = 4


def packed_width(vocabulary: int) -> int:
    """How many u16 a packed row has."""
    return 2 * ((vocabulary + 1) // 2) + PACKED_HEAD


def unpack(packed: Packed, vocabulary: int) -> Values:
    """Log-probabilities of packed rows."""
    head = np.ascontiguousarray(packed[:, :PACKED_HEAD]).view(np.float32)
    unpacked: Values = packed[:, PACKED_HEAD : PACKED_HEAD + vocabulary].astype(np.float32)
    unpacked *= head[:, :1]
    unpacked += head[:, 1:2]
    return unpacked


def not_finite(logits: Values) -> int | None:
    """The first row that holds NaN or an infinity."""
    for number, row in enumerate(logits):
        # A sum is finite only if all of it is; it may overflow, so it is only the first sieve.
        if not np.isfinite(row.sum()) and not np.isfinite(row).all():
            return number
    return None


class Scorer:
    """Room to work in for rows of one vocabulary; for one thread."""

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self._centred, self._taken, self._base = (
            np.empty(vocabulary, np.float32) for _ in range(3)
        )
        self._exp = np.empty(vocabulary, np.float64)
        self._above = np.empty(vocabulary, np.bool_)

    def log_sums(self, logits: Values) -> Values:
        """For each row the logarithm of the sum of the exponentials of the row less its top."""
        rows = (row[: self.vocabulary] for row in logits)
        return np.array([self._log_sum(row) for row in rows], np.float32)

    def pack(self, logits: Values, log_sums: Values, packed: Packed, floor: float = FLOOR) -> None:
        """Write rows of logits as log-probabilities, cut off `floor` nats below each row's top."""
        for row, log_sum, target in zip(logits, log_sums, packed, strict=True):
            self._pack(row[: self.vocabulary], log_sum, target, np.float32(floor))

    def score(self, logits: Values, log_sums: Values, packed: Packed, targets: Tokens) -> Values:
        """Losses in the order of `statistics.FIELDS`; row i of `logits` predicts `targets[i]`."""
        found = np.empty((len(FIELDS), len(targets)), np.float32)
        rows = zip(logits, log_sums, packed, targets, strict=True)
        for at, (row, log_sum, base, target) in enumerate(rows):
            found[:, at] = self._score(row[: self.vocabulary], log_sum, base, int(target))
        nll, base_nll = found[0], found[1]
        chance, base_chance = (_chances(one) for one in (nll, base_nll))
        np.subtract(chance, base_chance, out=found[3])
        return found

    def _log_sum(self, row: Values) -> np.float32:
        np.subtract(row, row.max(), out=self._centred)
        exponentials = self._exponentials(self._centred, self._centred)
        return np.float32(np.log(exponentials.sum(dtype=np.float64)))

    def _exponentials(self, values: Values, out: Values) -> Values:
        """Exponentials rounded to the nearest f32, as C's are but for one in a thousand.

        NumPy's own in f32 are up to 2.5 units off: in one row of twenty that turns the last bit of
        the logarithm of their sum, and with it a printed digit of a large KLD.
        """
        wide = np.exp(values, out=self._exp[: values.size], dtype=np.float64)
        np.copyto(out, wide, casting="same_kind")
        return out

    def _pack(self, row: Values, log_sum: np.float32, packed: Packed, floor: np.float32) -> None:
        top: np.float32 = row.max()
        lowest = np.maximum(row.min(), top - floor)
        scale = (top - lowest) / _STEPS
        head = packed[:PACKED_HEAD].view(np.float32)
        head[0], head[1] = scale, lowest - top - log_sum
        packed[PACKED_HEAD:] = 0
        if not scale:
            return
        steps = np.subtract(row, lowest, out=self._centred)
        steps *= np.float32(1) / scale
        np.clip(np.rint(steps, out=steps), 0, _STEPS, out=steps)
        np.copyto(packed[PACKED_HEAD : PACKED_HEAD + self.vocabulary], steps, casting="unsafe")

    def _score(
        self, row: Values, log_sum: np.float32, packed: Packed, target: int
    ) -> tuple[float, ...]:
        best = int(row.argmax())
        whole = row[best] + log_sum
        scale, lowest = packed[:PACKED_HEAD].view(np.float32)
        steps = packed[PACKED_HEAD : PACKED_HEAD + self.vocabulary]
        base, own = self._above_lowest(row, steps, scale, lowest)
        # The centred row is not needed any more; its room is.
        terms = np.subtract(base, own, out=self._centred[: base.size])
        terms += whole
        terms *= self._exponentials(base, base)
        return (
            whole - row[target],
            -(scale * np.float32(steps[target]) + lowest),
            terms.sum(dtype=np.float64),
            0.0,
            float(best == int(steps.argmax())),
        )

    def _above_lowest(
        self, row: Values, steps: Packed, scale: np.float32, lowest: np.float32
    ) -> tuple[Values, Values]:
        """The base's log-probabilities above the lowest that count, and the row's values there."""
        first = _first_counted(scale, lowest)
        if first == 0:
            base, own = self._base, row
            np.copyto(base, steps)
        else:
            np.greater_equal(steps, np.uint16(first), out=self._above)
            chosen = np.flatnonzero(self._above)
            base, own = self._base[: chosen.size], self._taken[: chosen.size]
            np.copyto(base, steps[chosen])
            np.take(row, chosen, out=own, mode="clip")
        base *= scale
        base += lowest
        return base, own


def _chances(nll: Values) -> Values:
    """Probabilities, rounded as in `Scorer._exponentials`."""
    return np.exp(-nll, dtype=np.float64).astype(np.float32)


def _first_counted(scale: np.float32, lowest: np.float32) -> int:
    """The smallest step whose log-probability counts; 65,535 at most, which is the row's top."""
    if lowest > _LOWEST or not scale:
        return 0
    # A damaged row may lead anywhere.
    first = int(min(max(0.0, (float(_LOWEST) - float(lowest)) / float(scale) - 2), float(_STEPS)))
    # Rounding decides at the edge, so it is asked for.
    while first < int(_STEPS) and scale * np.float32(first) + lowest <= _LOWEST:
        first += 1
    return first
