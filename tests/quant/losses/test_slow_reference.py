"""Every statistic against the same in double precision, on losses of any size."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quant.losses.percentiles import DELTA_P_LEVELS, KLD_LEVELS, percentiles
from quant.losses.statistics import (
    Scores,
    Values,
    clustered_error,
    mean,
    paired,
    perplexities,
    root_mean_square,
    share,
    student,
)
from quant.report.data import Estimate, Pair
from tests.quant.losses import slow
from tests.quant.losses.rows import logits, pack, score

CLOSE = 2e-4


@st.composite
def losses(draw: st.DrawFn) -> Scores:
    """Losses of a base, and of a quant that follows it more or less.

    Not too closely: squares are rounded to f32, and what is left of them would be rounding.
    """
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.integers(1, 6)), draw(st.integers(11, 60))
    noise = draw(st.sampled_from([0.1, 0.5, 2.0]))
    base = random.gamma(1, 2, shape)
    quant = np.abs(base + random.normal(0.05, noise, shape))
    kld = random.gamma(0.5, noise, shape) - 1e-6
    same = (random.random(shape) < 0.9).astype(np.float64)
    values = (quant, base, kld, np.exp(-quant) - np.exp(-base), same)
    return Scores(*(one.astype(np.float32) for one in values))


def _agrees(
    found: Estimate, wanted: tuple[float, float, float | None], rounding: float = 0.0
) -> None:
    """`rounding` is what f32 squares may leave in the square of the error."""
    value, error, clustered = wanted
    assert found.value == pytest.approx(value, rel=CLOSE, abs=1e-6)
    assert found.error is not None
    assert found.error**2 == pytest.approx(error**2, rel=CLOSE, abs=rounding + 1e-12)
    assert found.clustered == (
        None if clustered is None else pytest.approx(clustered, rel=CLOSE, abs=1e-6)
    )


def _rounding(quant: Sequence[float], base: Sequence[float]) -> float:
    squares = slow.mean([one * one for one in (*quant, *base)])
    return 4 * 2.0**-24 * squares / (len(quant) - 1)


def _mean(values: Values) -> tuple[float, float, float | None]:
    whole = slow.chunks(values)
    clustered = slow.by_chunk(len(whole), lambda at: slow.mean(whole[at]))
    return slow.mean(slow.flat(whole)), slow.error(slow.flat(whole)), clustered


def _times(estimate: tuple[float, float, float | None], by: float) -> tuple[float, float | None]:
    _, error, clustered = estimate
    return error * by, None if clustered is None else clustered * by


@given(losses())
def test_means_of_kld_and_of_delta_p(scores: Scores) -> None:
    for values in (scores.kld, scores.delta_p):
        _agrees(mean(values), _mean(values))


@given(losses())
def test_perplexities_with_their_errors(scores: Scores) -> None:
    found, wanted = perplexities(scores), slow.Slow(scores)
    for estimate, values, ppl in (
        (found.quant, scores.nll, wanted.ppl),
        (found.base, scores.base_nll, wanted.base_ppl),
    ):
        _agrees(estimate, (ppl, *_times(_mean(values), ppl)))


@given(losses())
def test_ratio_difference_and_logarithm_of_the_ratio(scores: Scores) -> None:
    found, wanted = perplexities(scores), slow.Slow(scores)
    logs = wanted.ln_ratio()
    ratio, rounding = math.exp(logs[0]), _rounding(wanted.quant, wanted.base)
    _agrees(found.ln_ratio, logs, rounding)
    _agrees(found.ratio, (ratio, *_times(logs, ratio)), ratio**2 * rounding)
    by_slope = rounding * max(wanted.ppl, wanted.base_ppl) ** 2
    _agrees(found.difference, wanted.difference(), by_slope)


@given(losses())
def test_correlation(scores: Scores) -> None:
    wanted = slow.Slow(scores).correlation()
    assert perplexities(scores).correlation == pytest.approx(wanted, abs=1e-4)


@given(losses())
def test_percentiles_of_kld_and_of_delta_p(scores: Scores) -> None:
    for values, levels in ((scores.kld, KLD_LEVELS), (scores.delta_p, DELTA_P_LEVELS)):
        flat = slow.flat(slow.chunks(values))
        near = 1e-4 * (max(flat) - min(flat)) + 1e-7
        found = percentiles(values, levels)
        assert [label for label, _ in found] == [label for label, _ in levels]
        for label, value in found:
            assert value == pytest.approx(slow.percentile(flat, _level(label)), abs=near)


def _level(label: str) -> float:
    named = {"max": 1.0, "median": 0.5, "min": 0.0}
    return named[label] if label in named else float(label.removesuffix(" %")) / 100


@given(losses())
def test_root_mean_square_of_delta_p(scores: Scores) -> None:
    squares = np.square(scores.delta_p.astype(np.float64)).astype(np.float32)
    of_squares = _mean(squares)
    root = math.sqrt(of_squares[0])
    _agrees(root_mean_square(scores.delta_p), (root, *_times(of_squares, 1 / (2 * root))))


@given(losses())
def test_share_of_the_same_first_choice(scores: Scores) -> None:
    part, _, clustered = _mean(scores.same_top)
    binomial = math.sqrt(part * (1 - part) / (scores.same_top.size - 1))
    _agrees(share(scores.same_top), (part, binomial, clustered))


@given(losses(), losses())
def test_ties_are_where_the_interval_over_chunks_holds_zero(first: Scores, other: Scores) -> None:
    rows = min(first.kld.shape[1], other.kld.shape[1])
    count = min(len(first.kld), len(other.kld))
    one, two = first.kld[:count, :rows], other.kld[:count, :rows]
    found, whole = paired(one, two), slow.chunks(one.astype(np.float64) - two)
    error = slow.by_chunk(count, lambda at: slow.mean(whole[at]))
    assert found.difference == pytest.approx(slow.mean(slow.flat(whole)), abs=1e-6)
    if error is None:
        assert found.half is None
        return
    half = student(count - 1) * error
    assert found.half == pytest.approx(half, rel=CLOSE, abs=1e-9)
    pair = Pair("one", "two", found.difference, found.half)
    if abs(abs(found.difference) - half) > 1e-6:
        assert pair.tie == (abs(slow.mean(slow.flat(whole))) <= half)


# By tables of Student's t.
@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (10, 2.228), (30, 2.042)],
)
def test_intervals_are_students(freedom: int, quantile: float) -> None:
    assert student(freedom) == pytest.approx(quantile, rel=0.002)


@given(st.integers(0, 2**32 - 1), st.integers(2, 70), st.sampled_from([16.0, 24.0]))
def test_every_loss_of_a_token_from_its_logits(seed: int, vocabulary: int, floor: float) -> None:
    base, quant = logits(seed, 12, vocabulary), logits(seed + 1, 12, vocabulary)
    targets = np.random.default_rng(seed).integers(0, vocabulary, 12).astype(np.int32)
    found = score(quant, pack(base, floor), targets)
    for row, target in enumerate(targets.tolist()):
        first, second = (_softmax_logs(one[row]) for one in (base, quant))
        lowest = max(min(first), max(first) - floor)
        cut = [max(lowest, one) for one in first]
        step = (max(cut) - lowest) / 65535 + 1e-6
        assert found.nll[0, row] == pytest.approx(-second[target], abs=1e-5)
        assert found.base_nll[0, row] == pytest.approx(-cut[target], abs=step)
        shift = math.exp(second[target]) - math.exp(cut[target])
        assert found.delta_p[0, row] == pytest.approx(shift, abs=step)
        kld = sum(math.exp(b) * (b - q) for b, q in zip(cut, second, strict=True) if b > -16)
        # Each term may be off by the step times its slope.
        slope = sum(math.exp(b) * (1 + abs(b - q)) for b, q in zip(cut, second, strict=True))
        assert found.kld[0, row] == pytest.approx(kld, abs=step * slope + 1e-5)
        assert found.same_top[0, row] == (base[row].argmax() == quant[row].argmax())


def _softmax_logs(row: Values) -> list[float]:
    values = [float(one) for one in row]
    whole = max(values) + math.log(math.fsum(math.exp(one - max(values)) for one in values))
    return [one - whole for one in values]


def test_perplexity_beyond_the_largest_number_is_infinite_as_llama_perplexity_prints_it() -> None:
    base = np.random.default_rng(1).random((3, 20), np.float32)
    found = perplexities(Scores(base + np.float32(800), base, base, base, base))
    assert found.quant.value == found.ratio.value == found.difference.value == math.inf
    assert found.base.value == pytest.approx(math.exp(float(base.mean())), rel=1e-6)
    assert found.ln_ratio.value == pytest.approx(800, rel=1e-6)
    loudest = np.full((3, 20), 3e38, np.float32)
    assert perplexities(Scores(loudest, base, base, base, base)).quant.value == math.inf


def test_ten_tokens_or_fewer_have_no_errors_and_no_correlation() -> None:
    few = np.random.default_rng(1).random((2, 5), np.float32)
    found = perplexities(Scores(few, few, few, few, few))
    assert found.quant.error == found.ln_ratio.error == 0
    assert math.isnan(found.correlation)
    assert clustered_error(few) is not None
