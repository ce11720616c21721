"""Logits made into losses of single tokens.

The base's row is packed as llama-perplexity keeps it in its files, so that a comparison in memory
gives the same numbers as one by way of a file: f32 scale, f32 lowest log-probability, and a u16
per token, padded to an even count.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
from numpy.typing import NDArray

from quant.statistics import Scores, Values

Packed = NDArray[np.uint16]
Tokens = NDArray[np.int32]

FLOOR: Final = 16.0
_LOWEST: Final = np.float32(-16)
_BLOCK: Final = 32
_STEPS: Final = np.float32(65535)


def packed_width(vocabulary: int) -> int:
    """How many u16 a packed row has."""
    return 2 * ((vocabulary + 1) // 2) + 4


def pack(logits: Values, floor: float = FLOOR) -> Packed:
    """Rows of logits as packed log-probabilities, cut off `floor` nats below each row's top."""
    rows, vocabulary = logits.shape
    packed = np.zeros((rows, packed_width(vocabulary)), np.uint16)
    top = logits.max(axis=1)
    lowest = np.maximum(logits.min(axis=1), top - np.float32(floor))
    log_sum = np.log(_exp_sum(logits - top[:, None])).astype(np.float32)
    scale = (top - lowest) / _STEPS
    head = np.empty((rows, 2), np.float32)
    head[:, 0], head[:, 1] = scale, lowest - top - log_sum
    packed[:, :4] = head.view(np.uint16)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    steps = np.rint((logits - lowest[:, None]) * inverse[:, None])
    packed[:, 4 : 4 + vocabulary] = np.clip(steps, 0, 65535)
    return packed


def unpack(packed: Packed, vocabulary: int) -> Values:
    """Log-probabilities of packed rows."""
    head = np.ascontiguousarray(packed[:, :4]).view(np.float32)
    unpacked: Values = packed[:, 4 : 4 + vocabulary].astype(np.float32)
    unpacked *= head[:, :1]
    unpacked += head[:, 1:]
    return unpacked


def not_finite(logits: Values) -> int | None:
    """The first row that holds NaN or an infinity."""
    # A sum is finite only if everything in it is; it may overflow, so it is only the first sieve.
    for row in np.flatnonzero(~np.isfinite(logits.sum(axis=1, dtype=np.float64))):
        if not np.isfinite(logits[row]).all():
            return int(row)
    return None


def score(logits: Values, base: Packed, targets: Tokens, threads: int = 1) -> Scores:
    """Losses of one chunk, each of shape (1, rows); row i of `logits` predicts `targets[i]`."""
    return Scores(
        *_in_blocks(
            lambda rows: _block(logits[rows], base[rows], targets[rows]), len(targets), threads
        )
    )


def _in_blocks(
    work: Callable[[slice], NDArray[np.float32]], rows: int, threads: int
) -> NDArray[np.float32]:
    blocks = [slice(at, min(at + _BLOCK, rows)) for at in range(0, rows, _BLOCK)]
    with ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(work, blocks)), axis=1)[:, None, :]


def _block(logits: Values, packed: Packed, targets: Tokens) -> NDArray[np.float32]:
    every = np.arange(len(targets))
    top = logits.max(axis=1, keepdims=True)
    centred = logits - top
    log_sum = np.log(_exp_sum(centred)).astype(np.float32)
    base = unpack(packed, logits.shape[1])
    nll = log_sum - centred[every, targets]
    base_nll = -base[every, targets]
    terms = np.exp(base) * (base - centred + log_sum[:, None])
    kld = np.where(base > _LOWEST, terms, np.float32(0)).sum(axis=1, dtype=np.float64)
    same = centred.argmax(axis=1) == base.argmax(axis=1)
    result = np.empty((5, len(targets)), np.float32)
    result[:] = nll, base_nll, kld, np.exp(-nll) - np.exp(-base_nll), same
    return result


def _exp_sum(centred: Values) -> NDArray[np.float64]:
    total: NDArray[np.float64] = np.exp(centred).sum(axis=1, dtype=np.float64)
    return total
