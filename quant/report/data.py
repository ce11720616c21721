"""What a report shows: measured losses beside sizes, grouped by what may be compared.

Losses in nats unless named otherwise; shares and probabilities from 0 to 1; sizes in bytes; speeds
in tokens per second.
"""

from __future__ import annotations

from dataclasses import dataclass

from quant.tasks.tasks import ModelTasks


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its standard errors: `error` as llama-perplexity gives it, for independent
    tokens, and `clustered` over whole chunks, which is the honest one. `None` is not known."""

    value: float
    error: float | None = None
    clustered: float | None = None

    @property
    def spread(self) -> float:
        """The larger of the two errors, 0 if none is known."""
        return max(self.error or 0.0, self.clustered or 0.0)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts between neighbouring edges; one edge more than counts."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class QuantLoss:
    """One quant against the base on one corpus.

    `key` is the model's digest, which tells it apart from all others, whatever its name is, and is
    the same in records of tasks. `base_ppl` is the base's by its packed rows, which all differences
    are against. Percentiles are pairs of what they
    are called (`max`, `99.9 %`, `median`) and the value, largest first. `kld_by_position` is the
    mean per scored position of a chunk.
    """

    key: str
    name: str
    file_size: int
    bpw_all: float
    bpw_trunk: float
    bpw_body: float
    ppl: Estimate
    base_ppl: Estimate
    ppl_ratio: Estimate
    ppl_difference: Estimate
    ln_ratio: Estimate
    correlation: float
    kld: Estimate
    kld_percentiles: tuple[tuple[str, float], ...]
    delta_p: Estimate
    delta_p_percentiles: tuple[tuple[str, float], ...]
    rms_delta_p: Estimate
    same_top: Estimate
    kld_by_position: tuple[float, ...] = ()
    delta_p_histogram: Histogram | None = None
    prompt_speed: float | None = None
    generation_speed: float | None = None
    notices: tuple[str, ...] = ()

    def kld_at(self, label: str) -> float | None:
        """A percentile of the KLD, such as `99.9 %`."""
        return dict(self.kld_percentiles).get(label)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two quants by their keys, with the difference of their mean KLD, the first less the second.

    `half` is half the 95 % interval, paired over the same chunks, `None` where it is not known.
    """

    first: str
    second: str
    difference: float
    half: float | None

    @property
    def tie(self) -> bool:
        """Whether the data do not tell the two apart."""
        return self.half is None or abs(self.difference) <= self.half


@dataclass(frozen=True, slots=True)
class Stopped:
    """A quant without numbers, and why: its logits were not finite, or it did not fit the base."""

    name: str
    file_size: int
    problem: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Quants that were measured with equal settings on one corpus; only these are ranked together.

    `pairs` has each two quants once. `floor` is the mean KLD of
    the base against itself. `settings` are pairs for people to read.
    """

    corpus: str
    base: str
    base_key: str
    base_size: int
    base_ppl: Estimate
    tokens: int
    chunks: int
    quants: tuple[QuantLoss, ...]
    pairs: tuple[Pair, ...] = ()
    floor: float | None = None
    stopped: tuple[Stopped, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()

    def tied(self, first: QuantLoss, second: QuantLoss) -> bool:
        """Whether the data do not tell the two apart, whichever is named first."""
        both = {first.key, second.key}
        return any(pair.tie and {pair.first, pair.second} == both for pair in self.pairs)


@dataclass(frozen=True, slots=True)
class AverageRow:
    """One quant's means over several corpora, each corpus counting the same."""

    key: str
    name: str
    file_size: int
    kld: Estimate
    ln_ratio: Estimate
    rms_delta_p: Estimate
    same_top: Estimate


@dataclass(frozen=True, slots=True)
class Average:
    """Macro averages of comparisons with equal settings; `settings` are those they share."""

    corpora: tuple[str, ...]
    quants: tuple[AverageRow, ...]
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """A whole study. `created` and `program` are told as they are."""

    title: str
    created: str
    program: str
    comparisons: tuple[Comparison, ...]
    averages: tuple[Average, ...] = ()
    tasks: tuple[ModelTasks, ...] = ()
    notices: tuple[str, ...] = ()
