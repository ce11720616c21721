"""The statistics of tasks, against slow or exact reckonings of the same."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.tasks.record import TaskRun
from quant.tasks.tasks import retention, solved_share, summarise, wilson

RUN = TaskRun(
    task="t0",
    task_digest="0",
    model="base.gguf",
    model_digest="base",
    settings="same",
    seed=1,
    solved=True,
    outcome="complete",
    attempts=2,
    commits=1,
    tokens=100,
    rank_before=3,
    rank_after=0,
    seconds=1.0,
)


def runs_of(model: str, solved: Sequence[Sequence[bool]]) -> list[TaskRun]:
    """One run per task (row) and seed (column)."""
    return [
        replace(
            RUN,
            task=f"t{task}",
            task_digest=str(task),
            model=f"{model}.gguf",
            model_digest=model,
            seed=seed,
            solved=won,
            commits=int(won),
        )
        for task, row in enumerate(solved)
        for seed, won in enumerate(row)
    ]


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


grids = st.integers(1, 4).flatmap(
    lambda seeds: st.lists(
        st.lists(st.booleans(), min_size=seeds, max_size=seeds), min_size=1, max_size=12
    )
)


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_s_bounds_solve_his_equation(counts: tuple[int, int]) -> None:
    solved, trials = counts
    found = wilson(solved, trials)
    share = solved / trials
    assert 0 <= found.low <= found.value == share <= found.high <= 1
    for bound in (found.low, found.high):
        if 0 < bound < 1:
            spread = 1.959963984540054 * math.sqrt(bound * (1 - bound) / trials)
            assert abs(share - bound) == pytest.approx(spread, rel=1e-6)


def test_wilson_s_interval_of_a_textbook_case() -> None:
    found = wilson(8, 10)
    assert found.low == pytest.approx(0.4902, abs=1e-4)
    assert found.high == pytest.approx(0.9433, abs=1e-4)


@given(grids)
def test_repeating_every_run_tells_nothing_new(grid: list[list[bool]]) -> None:
    once = solved_share(runs_of("q", [[row[0]] for row in grid]))
    thrice = solved_share(runs_of("q", [[row[0]] * 3 for row in grid]))
    assert thrice.value == once.value
    # The correction from n to n − 1 tasks makes the repeated one a little wider, if anything.
    assert thrice.high - thrice.low >= (once.high - once.low) * (1 - 1e-9)


@given(grids)
def test_the_solved_share_is_inside_its_interval(grid: list[list[bool]]) -> None:
    found = solved_share(runs_of("q", grid))
    exact = Fraction(sum(map(sum, grid)), sum(map(len, grid)))
    assert found.value == pytest.approx(float(exact))
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_seeds_that_disagree_within_each_task_count_as_runs_of_their_own() -> None:
    found = solved_share(runs_of("q", [[True, False]] * 30))
    plain = wilson(30, 60)
    assert found.low == pytest.approx(plain.low)
    assert found.high == pytest.approx(plain.high)


@settings(max_examples=50)
@given(grids)
def test_a_model_ties_with_itself_and_says_how_little_that_proves(grid: list[list[bool]]) -> None:
    found = retention(runs_of("q", grid), runs_of("base", grid), random())
    assert found is not None
    assert found.tie
    assert (found.better, found.worse, found.difference.value) == (0, 0, 0.0)
    # 1 - 0.05^(1/n), the exact form of the "rule of three".
    assert (1 - found.difference.high) ** len(grid) == pytest.approx(0.05)


def test_a_difference_on_every_task_is_no_tie() -> None:
    found = retention(
        runs_of("q", [[False, False]] * 20), runs_of("base", [[True, True]] * 20), random()
    )
    assert found is not None
    assert not found.tie
    assert (found.difference.value, found.worse, found.pairs) == (-1.0, 20, 40)


def test_a_difference_on_one_task_of_twenty_is_a_tie() -> None:
    base = [[True]] * 20
    found = retention(runs_of("q", [[False], *base[1:]]), runs_of("base", base), random())
    assert found is not None
    assert found.tie
    assert found.difference.value == pytest.approx(-0.05)


def test_only_runs_with_the_same_task_and_seed_are_paired() -> None:
    quant = runs_of("q", [[True, True], [False, False]])
    base = runs_of("base", [[True, False, True]])
    found = retention(quant, base, random())
    assert found is not None
    assert (found.pairs, found.difference.value) == (2, 0.5)
    assert retention(quant[2:], base, random()) is None


def test_the_bootstrap_covers_what_it_claims() -> None:
    chance = random(7)
    true_difference, covered, studies = -0.2, 0, 200
    for _ in range(studies):
        base = [[bool(chance.random() < 0.6)] for _ in range(40)]
        quant = [[bool(chance.random() < 0.4)] for _ in range(40)]
        found = retention(runs_of("q", quant), runs_of("base", base), chance)
        assert found is not None
        covered += found.difference.low <= true_difference <= found.difference.high
    # 95 % of 200 are 190; its own spread is 3.1.
    assert covered >= 180


def test_costs_per_commit_count_the_runs_in_vain() -> None:
    runs = runs_of("base", [[True], [False], [True], [False]])
    (row,) = summarise(runs, "base", random())
    assert row.attempts_per_commit is not None
    assert row.attempts_per_commit.value == 4.0
    assert row.tokens_per_commit is not None
    assert row.tokens_per_commit.value == 200.0
    assert row.tokens_per_commit.low <= 200.0 <= row.tokens_per_commit.high


def test_without_any_commit_there_is_no_cost_of_one() -> None:
    (row,) = summarise(runs_of("base", [[False], [False]]), "base", random())
    assert (row.attempts_per_commit, row.tokens_per_commit) == (None, None)


def test_the_base_stands_first_and_is_not_compared_with_itself() -> None:
    runs = runs_of("q", [[True]]) + runs_of("base", [[True]])
    rows = summarise(runs, "base", random())
    assert [row.model for row in rows] == ["base.gguf", "q.gguf"]
    assert rows[0].retention is None
    assert rows[1].retention is not None


def test_the_same_runs_give_the_same_intervals() -> None:
    runs = runs_of("base", [[True], [False], [True]]) + runs_of("q", [[False], [False], [True]])
    assert summarise(runs, "base", random(5)) == summarise(runs, "base", random(5))


def test_runs_of_unequal_settings_are_not_compared() -> None:
    runs = [RUN, replace(RUN, model_digest="q", settings="other")]
    with pytest.raises(ValueError, match="unequal settings"):
        summarise(runs, "base", random())
