"""Made-up measurements for the tests of reports; no model was asked."""

from collections.abc import Sequence

from quant.report.data import (
    Average,
    AverageRow,
    Comparison,
    Estimate,
    Histogram,
    Pair,
    QuantLoss,
    Report,
    Stopped,
)

PERCENTILES = ("max", "99.9 %", "99 %", "95 %", "90 %", "median", "10 %", "5 %", "1 %", "0.1 %")


def loss(key: str, size: int, kld: float, name: str = "", error: float = 0.001) -> QuantLoss:
    """A quant of `size` MiB with a mean KLD."""
    return QuantLoss(
        key=key,
        name=name or f"model-{key}",
        file_size=size * 2**20,
        bpw_all=size / 20,
        bpw_trunk=size / 20,
        bpw_body=size / 25,
        ppl=Estimate(10 + kld, 0.5, 0.6),
        base_ppl=Estimate(10.0, 0.5, 0.6),
        ppl_ratio=Estimate(1 + kld, 0.01, 0.02),
        ppl_difference=Estimate(10 * kld, 0.1),
        ln_ratio=Estimate(kld, 0.01),
        correlation=0.99,
        kld=Estimate(kld, error, 2 * error),
        kld_percentiles=tuple(
            (label, kld * 2.0 ** (5 - at)) for at, label in enumerate(PERCENTILES)
        ),
        delta_p=Estimate(-kld / 10, 0.001),
        delta_p_percentiles=(("max", 0.5), ("median", 0.0), ("min", -0.75)),
        rms_delta_p=Estimate(kld / 2, 0.001),
        same_top=Estimate(1 - kld, 0.002, 0.004),
        kld_by_position=tuple(kld * (1 + at % 3) for at in range(255)),
        delta_p_histogram=Histogram((-1.0, -0.1, 0.1, 1.0), (2, 90, 8)),
        prompt_speed=900.0,
        generation_speed=90.5,
    )


def comparison(
    *quants: QuantLoss, ties: Sequence[tuple[str, str]] = (), corpus: str = "prose"
) -> Comparison:
    """Quants that were measured together."""
    return Comparison(
        corpus=corpus,
        base="base-F16",
        base_key="base",
        base_size=270 * 2**20,
        base_ppl=Estimate(10.0, 0.5),
        tokens=2805,
        chunks=11,
        quants=quants,
        pairs=tuple(Pair(first, second, 0.001, 0.002) for first, second in ties),
        floor=1e-6,
        stopped=(Stopped("model-nan", 5 * 2**20, "not finite in chunk 3"),),
        settings=(("n_ctx", "512"), ("batch", "2048")),
    )


def average() -> Average:
    """Means of one quant over two corpora."""
    even = Estimate(0.25, 0.001, 0.002)
    row = AverageRow("a", "model-a", 10 * 2**20, even, even, even, even)
    return Average(("prose", "code"), (row,), (("n_ctx", "512"),))


def report(*comparisons: Comparison) -> Report:
    """A report at a fixed time."""
    return Report("Quants of a model", "2024-03-01 12:00", "veriloop 1.0", comparisons)
