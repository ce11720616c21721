"""The statistics once more: slowly, in double precision, straight from their formulas."""

import math
from collections.abc import Callable, Sequence

from quant.losses.statistics import Scores

Chunks = Sequence[Sequence[float]]


def chunks(values: object) -> list[list[float]]:
    """Values of tokens as lists, one per chunk."""
    found: list[list[float]] = values.tolist()  # type: ignore[attr-defined]
    return found


def flat(values: Chunks) -> list[float]:
    """All in one list."""
    return [one for chunk in values for one in chunk]


def mean(values: Sequence[float]) -> float:
    """The mean."""
    return math.fsum(values) / len(values)


def covariance(first: Sequence[float], second: Sequence[float]) -> float:
    """That of two means over the same tokens."""
    middle, other = mean(first), mean(second)
    apart = [(a - middle) * (b - other) for a, b in zip(first, second, strict=True)]
    return mean(apart) / (len(first) - 1)


def error(values: Sequence[float]) -> float:
    """The standard error of a mean of independent tokens."""
    return math.sqrt(covariance(values, values))


def by_chunk(count: int, found: Callable[[int], float]) -> float | None:
    """The standard error of the mean of what is found for each chunk."""
    if count < 2:
        return None
    means = [found(chunk) for chunk in range(count)]
    middle = mean(means)
    return math.sqrt(math.fsum((one - middle) ** 2 for one in means) / (count - 1) / count)


def percentile(values: Sequence[float], level: float) -> float:
    """Linear between the neighbours of `level * (n - 1)`."""
    ascending = sorted(values)
    place = level * (len(values) - 1)
    below = min(int(place), len(values) - 2)
    part = place - below
    return ascending[below] * (1 - part) + ascending[below + 1] * part


class Slow:
    """All that is found about two models from their losses."""

    def __init__(self, scores: Scores) -> None:
        self.count = len(scores.nll)
        self.quant_chunks, self.base_chunks = chunks(scores.nll), chunks(scores.base_nll)
        self.quant, self.base = flat(self.quant_chunks), flat(self.base_chunks)
        self.ppl, self.base_ppl = math.exp(mean(self.quant)), math.exp(mean(self.base))
        self.covariance = covariance(self.quant, self.base)

    def correlation(self) -> float:
        """Pearson's, of the losses."""
        return self.covariance / (error(self.quant) * error(self.base))

    def ln_ratio(self) -> tuple[float, float, float | None]:
        """Value, error, clustered error."""
        apart = [a - b for a, b in zip(self.quant, self.base, strict=True)]
        clustered = by_chunk(
            self.count, lambda at: mean(self.quant_chunks[at]) - mean(self.base_chunks[at])
        )
        return mean(apart), error(apart), clustered

    def difference(self) -> tuple[float, float, float | None]:
        """Value, error, clustered error: that of perplexities, by their slopes."""
        weighted = [
            self.ppl * a - self.base_ppl * b for a, b in zip(self.quant, self.base, strict=True)
        ]
        clustered = by_chunk(
            self.count,
            lambda at: (
                self.ppl * mean(self.quant_chunks[at]) - self.base_ppl * mean(self.base_chunks[at])
            ),
        )
        return self.ppl - self.base_ppl, error(weighted), clustered
