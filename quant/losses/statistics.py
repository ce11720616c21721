"""Losses of single tokens made into numbers with errors: as llama-perplexity does, and honestly.

The plain errors take tokens for independent. The clustered ones take only whole chunks for that,
and are found from the spread of the chunks' means. Where llama-perplexity rounds a square or a
product to f32 before it is summed up in f64, so is it here: errors agree to the last printed digit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from quant.report.data import Estimate

Values = NDArray[np.float32]

FIELDS: Final = ("nll", "base_nll", "kld", "delta_p", "same_top")

_FEW: Final = 10
_Z: Final = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Scores:
    """One value per scored token, each of shape (chunks, rows).

    `nll` and `base_nll` are in nats, `kld` too; `delta_p` is the probability of the right token
    minus the base's; `same_top` is 1 where both have the same first choice.
    """

    nll: Values
    base_nll: Values
    kld: Values
    delta_p: Values
    same_top: Values


@dataclass(frozen=True, slots=True)
class Perplexities:
    """Perplexity of a quant and of its base, and how they stand to each other."""

    quant: Estimate
    base: Estimate
    ratio: Estimate
    difference: Estimate
    ln_ratio: Estimate
    correlation: float


def mean(values: Values) -> Estimate:
    """The mean over all tokens, with both errors."""
    return Estimate(_sum(values) / values.size, naive_error(values), clustered_error(values))


def naive_error(values: Values) -> float:
    """The standard error of the mean if tokens were independent; 0 for ten tokens or fewer."""
    count = values.size
    middle = _sum(values) / count
    with np.errstate(over="ignore"):
        squares = _sum(np.square(values)) / count
    if count <= _FEW or squares <= middle * middle:
        return 0.0
    return math.sqrt((squares - middle * middle) / (count - 1))


def clustered_error(values: NDArray[np.float32] | NDArray[np.float64]) -> float | None:
    """The standard error of the mean if only chunks are independent; needs two of them."""
    if values.shape[0] < 2:
        return None
    means = values.mean(axis=1, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return float(means.std(ddof=1) / math.sqrt(means.size))


def perplexities(scores: Scores) -> Perplexities:
    """Perplexities with the errors of correlated measurements.

    Of a model that is broken but finite they may be infinite, and what is found from them NaN. The
    correlation is NaN where an error is 0, as with ten tokens or fewer.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _perplexities(scores)


def _perplexities(scores: Scores) -> Perplexities:
    quant, base = mean(scores.nll), mean(scores.base_nll)
    ours, theirs = quant.error or 0.0, base.error or 0.0
    product = _sum(scores.nll * scores.base_nll) / scores.nll.size
    covariance = 0.0
    if scores.nll.size >= _FEW:
        covariance = (product - quant.value * base.value) / (scores.nll.size - 1)
    both = ours * theirs
    ppl, base_ppl = _exp(quant.value), _exp(base.value)
    ratio = _exp(quant.value - base.value)
    spread = _root(ours * ours + theirs * theirs - 2 * covariance)
    first, second = ppl * ours, base_ppl * theirs
    apart = _root(first * first + second * second - 2 * ppl * base_ppl * covariance)
    paired = scores.nll.astype(np.float64) - scores.base_nll
    weighted = ppl * scores.nll.astype(np.float64) - base_ppl * scores.base_nll
    logs = Estimate(quant.value - base.value, spread, clustered_error(paired))
    return Perplexities(
        quant=_exponential(quant),
        base=_exponential(base),
        ratio=Estimate(ratio, ratio * spread, _times(logs.clustered, ratio)),
        difference=Estimate(ppl - base_ppl, apart, clustered_error(weighted)),
        ln_ratio=logs,
        correlation=covariance / both if both > 0 else math.nan,
    )


def root_mean_square(values: Values) -> Estimate:
    """The root of the mean square, its errors by the delta method."""
    squares = mean(np.square(values))
    root = math.sqrt(squares.value)
    if root == 0:
        return Estimate(0.0, 0.0, _times(squares.clustered, 0.0))
    scale = 1 / (2 * root)
    return Estimate(root, (squares.error or 0.0) * scale, _times(squares.clustered, scale))


def share(values: Values) -> Estimate:
    """A share of tokens with the binomial error."""
    part = _sum(values) / values.size
    error = math.sqrt(part * (1 - part) / (values.size - 1)) if values.size > 1 else 0.0
    return Estimate(part, error, clustered_error(values))


@dataclass(frozen=True, slots=True)
class Paired:
    """A difference of two means over the same tokens; `half` is half its 95 % interval, over whole
    chunks, `None` where one chunk tells nothing."""

    difference: float
    half: float | None


def paired(first: Values, second: Values) -> Paired:
    """The mean of `first` less that of `second`, its interval by the differences of chunk means.

    Student's t by its expansion around the normal quantile (Abramowitz and Stegun, 26.7.5).
    """
    apart = first.astype(np.float64) - second
    error = clustered_error(apart)
    half = None if error is None else student(apart.shape[0] - 1) * error
    return Paired(float(apart.mean()), half)


def student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, at most 0.2 % off."""
    exact = {1: 12.706, 2: 4.303}
    if freedom in exact:
        return exact[freedom]
    terms = (
        (_Z**3 + _Z) / 4,
        (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96,
        (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / 384,
        (79 * _Z**9 + 776 * _Z**7 + 1482 * _Z**5 - 1920 * _Z**3 - 945 * _Z) / 92160,
    )
    return _Z + sum(term / float(freedom) ** power for power, term in enumerate(terms, 1))


def _exponential(logs: Estimate) -> Estimate:
    value = _exp(logs.value)
    return Estimate(value, (logs.error or 0.0) * value, _times(logs.clustered, value))


def _exp(value: float) -> float:
    """Beyond the largest number it is infinite, as in C."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _root(square: float) -> float:
    """The root of what rounding may have left a little below 0; NaN stays NaN."""
    return 0.0 if square < 0 else math.sqrt(square)


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _sum(values: NDArray[np.float32] | NDArray[np.float64]) -> float:
    return float(values.sum(dtype=np.float64))
