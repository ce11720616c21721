"""Percentiles as llama-perplexity gives them: linear between neighbours, in single precision."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

KLD_LEVELS: Final = (
    *(("max", 1.0), ("99.9 %", 0.999), ("99 %", 0.99), ("95 %", 0.95), ("90 %", 0.9)),
    *(("median", 0.5), ("10 %", 0.1), ("5 %", 0.05), ("1 %", 0.01), ("0.1 %", 0.001)),
    ("min", 0.0),
)
DELTA_P_LEVELS: Final = (
    *KLD_LEVELS[:5],
    *(("75 %", 0.75), ("median", 0.5), ("25 %", 0.25)),
    *KLD_LEVELS[6:],
)


def percentile(ascending: NDArray[np.float32], level: float) -> float:
    """The value at `level * (n - 1)` of sorted values, `level` from 0 to 1."""
    if level <= 0:
        return float(ascending[0])
    if level >= 1:
        return float(ascending[-1])
    place = np.float32(level) * np.float32(ascending.size - 1)
    below = int(place)
    if below + 1 >= ascending.size:
        return float(ascending[-1])
    part = np.float32(place - np.float32(below))
    return float((np.float32(1) - part) * ascending[below] + part * ascending[below + 1])


def percentiles(
    values: NDArray[np.float32], levels: tuple[tuple[str, float], ...]
) -> tuple[tuple[str, float], ...]:
    """What each of `levels` is called, with its value."""
    ascending = np.sort(values, axis=None)
    return tuple((label, percentile(ascending, level)) for label, level in levels)
