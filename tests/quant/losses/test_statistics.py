import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quant.losses.percentiles import KLD_LEVELS, percentiles
from quant.losses.scoring import not_finite, unpack
from quant.losses.statistics import (
    Scores,
    clustered_error,
    naive_error,
    paired,
    perplexities,
    student,
)
from tests.quant.losses.rows import logits, pack, score

seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.integers(1, 40), st.integers(2, 70))
def test_scores_are_those_of_a_slow_reference(seed: int, rows: int, vocabulary: int) -> None:
    base, quant = logits(seed, rows, vocabulary), logits(seed + 1, rows, vocabulary)
    targets = np.random.default_rng(seed).integers(0, vocabulary, rows).astype(np.int32)
    packed = pack(base)
    found = score(quant, packed, targets)
    lowered = unpack(packed, vocabulary).astype(np.float64)
    for row in range(rows):
        values = [float(one) for one in quant[row]]
        log_sum = math.log(sum(math.exp(one - max(values)) for one in values)) + max(values)
        logs = [one - log_sum for one in values]
        pairs = [(b, q) for b, q in zip(lowered[row], logs, strict=True) if b > -16]
        kld = sum(math.exp(b) * (b - q) for b, q in pairs)
        right = targets[row]
        assert found.kld[0, row] == pytest.approx(kld, abs=2e-4)
        assert found.nll[0, row] == pytest.approx(-logs[right], abs=1e-4)
        shift = math.exp(logs[right]) - math.exp(lowered[row][right])
        assert found.delta_p[0, row] == pytest.approx(shift, abs=1e-5)


@given(seeds, st.integers(2, 71), st.sampled_from([16.0, 24.0]))
def test_packed_rows_are_at_most_one_step_off_above_the_floor(
    seed: int, vocabulary: int, floor: float
) -> None:
    rows = logits(seed, 3, vocabulary)
    found = unpack(pack(rows, floor), vocabulary)
    top = rows.max(axis=1, keepdims=True)
    exact = rows - top - np.log(np.exp(rows - top).sum(axis=1, keepdims=True))
    above = rows > top - floor
    assert np.abs(found - exact)[above].max() <= floor / 65535 + 1e-5


@given(seeds, st.integers(11, 200))
def test_plain_errors_are_those_of_the_formula(seed: int, count: int) -> None:
    values = np.random.default_rng(seed).normal(0, 1, (1, count)).astype(np.float32)
    middle = sum(map(float, values[0])) / count
    spread = sum(float(one) ** 2 for one in values[0]) / count - middle**2
    assert naive_error(values) == pytest.approx(math.sqrt(spread / (count - 1)), rel=1e-6)


def test_equal_chunks_leave_no_clustered_error_and_one_chunk_tells_none() -> None:
    values = np.tile(np.arange(5, dtype=np.float32), (4, 1))
    assert clustered_error(values) == 0
    assert clustered_error(values[:1]) is None


@given(seeds)
def test_a_quant_equal_to_its_base_has_a_ratio_of_exactly_one(seed: int) -> None:
    nll = np.random.default_rng(seed).random((4, 50), np.float32)
    found = perplexities(Scores(nll, nll, nll * 0, nll * 0, nll * 0 + 1))
    assert found.ratio.value == 1
    assert found.ratio.clustered == 0
    assert found.correlation == pytest.approx(1)


def test_differences_within_the_noise_are_ties() -> None:
    random = np.random.default_rng(1)
    first = random.normal(1, 0.1, (12, 50)).astype(np.float32)
    same = paired(first, first + random.normal(0, 0.1, first.shape).astype(np.float32))
    assert same.half is not None
    assert abs(same.difference) <= same.half
    apart = paired(first, first + np.float32(0.5))
    assert apart.half is not None
    assert abs(apart.difference) > apart.half
    assert paired(first[:1], first[:1] + np.float32(0.5)).half is None
    assert student(10) == pytest.approx(2.228, abs=0.01)


def test_percentiles_lie_between_neighbours() -> None:
    found = dict(percentiles(np.arange(101, dtype=np.float32), KLD_LEVELS))
    assert (found["max"], found["median"], found["min"]) == (100, 50, 0)
    assert found["99.9 %"] == pytest.approx(99.9, abs=1e-4)


def test_the_first_row_that_is_not_finite_is_named() -> None:
    rows = logits(1, 4, 7)
    assert not_finite(rows) is None
    rows[2, 3] = np.nan
    assert not_finite(rows) == 2
