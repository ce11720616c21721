"""The pace on made-up costs and outcomes; no model runs here."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.engine.decoding.pace import Choice, CostCurve, Pace, Source

FLAT = [(1, 10.0), (2, 10.1), (3, 10.2), (5, 10.4), (9, 10.8)]
STEEP = [(1, 10.0), (2, 18.0), (3, 24.0), (5, 36.0), (9, 56.0)]
HEAD: list[tuple[Source, int]] = [("head", 0)]


def run(pace: Pace, share: float, tokens: int, seed: int = 1, draft_ms: float = 0.3) -> float:
    """Tokens per plain token's time, on the pace's own curve, if `share` of guesses are right."""
    curve, chance = dict(pace.cost._base), random.Random(seed)
    time, made = 0.0, 0
    while made < tokens:
        choice = pace.choose(HEAD, 100)
        count = choice.count if choice else 0
        accepted = 0
        while accepted < count and chance.random() < share:
            accepted += 1
        ms = CostCurve(curve.items()).at(count + 1)
        if choice is not None:
            pace.note_draft(count, count * draft_ms)
            pace.note_outcome(choice, accepted, count)
            time += count * draft_ms
        pace.note_batch(count + 1, ms)
        time += ms
        made += accepted + 1
    return made * curve[1] / time


def test_good_guesses_on_a_flat_curve_are_drafted_long() -> None:
    pace = Pace(CostCurve(FLAT), 8)

    assert run(pace, 0.95, 500) > 3.0
    choice = pace.choose(HEAD, 100)
    assert choice is not None
    assert choice.count >= 6


def test_bad_guesses_are_drafted_short_or_not_at_all() -> None:
    pace = Pace(CostCurve(FLAT), 8)

    run(pace, 0.1, 500)

    choice = pace.choose(HEAD, 100)
    assert choice is None or choice.count <= 2


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("curve", [FLAT, STEEP])
def test_speculation_is_hardly_ever_slower_than_none(
    curve: list[tuple[int, float]], share: float
) -> None:
    assert run(Pace(CostCurve(curve), 8), share, 3000) >= 0.97


def test_it_tells_when_it_rests_and_when_no_more() -> None:
    pace = Pace(CostCurve(FLAT), 8)
    run(pace, 0.0, 600)
    rested = pace.resting
    run(pace, 0.95, 3000)

    assert rested
    assert not pace.resting


def test_guesses_that_turn_good_are_found_out() -> None:
    pace = Pace(CostCurve(FLAT), 8)
    run(pace, 0.0, 600)

    assert run(pace, 0.95, 3000) > 2.0


def test_a_curve_on_which_nothing_can_pay_is_hopeless() -> None:
    assert Pace(CostCurve([(n, 10.0 * n) for n in range(1, 10)]), 8).hopeless()
    assert not Pace(CostCurve(STEEP), 8).hopeless()
    assert not Pace(CostCurve([(1, 1.0), (9, 99.0)]), 8, fixed=True).hopeless()


def test_a_fixed_pace_drafts_its_length_whatever_becomes_of_it() -> None:
    pace = Pace(CostCurve(), 5, fixed=True)
    for _ in range(50):
        pace.note_outcome(Choice("head", 0, 5), 0, 5)
        pace.note_batch(6, 99.0)

    assert pace.choose(HEAD, 100) == Choice("head", 0, 5)
    assert pace.choose(HEAD, 2) == Choice("head", 0, 2)


def test_a_long_match_in_the_prompt_beats_a_head_that_often_errs() -> None:
    pace = Pace(CostCurve(FLAT), 8)
    run(pace, 0.3, 300)

    choice = pace.choose([*HEAD, ("lookup", 30)], 100)

    assert choice is not None
    assert choice.source == "lookup"


def test_no_more_is_drafted_than_there_is_room_for() -> None:
    pace = Pace(CostCurve(FLAT), 8)

    assert pace.choose(HEAD, 0) is None
    choice = pace.choose(HEAD, 1)
    assert choice is not None
    assert choice.count == 1


def test_one_slow_evaluation_does_not_decide() -> None:
    pace = Pace(CostCurve(FLAT), 8)
    run(pace, 0.95, 300)

    pace.note_batch(9, 10_000.0)

    assert pace.choose(HEAD, 100) is not None


@given(
    st.lists(st.tuples(st.integers(1, 40), st.floats(0.01, 1e4)), max_size=6),
    st.lists(st.tuples(st.integers(1, 40), st.floats(0.01, 1e4)), max_size=6),
    st.integers(1, 60),
)
def test_a_cost_is_positive_whatever_was_measured(
    base: list[tuple[int, float]], seen: list[tuple[int, float]], count: int
) -> None:
    curve = CostCurve(base)
    for size, ms in seen:
        curve.note(size, ms)

    assert curve.at(count) > 0
