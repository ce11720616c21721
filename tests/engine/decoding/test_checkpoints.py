from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.engine.decoding.checkpoints import Checkpoint, Checkpoints

positions = st.lists(st.integers(1, 1000), unique=True, max_size=20).map(sorted)


def filled(at: list[int], max_count: int = 4, size: int = 10, max_bytes: int = 1000) -> Checkpoints:
    checkpoints = Checkpoints(max_count, max_bytes)
    for position in at:
        checkpoints.add(position, lambda p=position: Checkpoint(p, b"s" * size))  # type: ignore[misc]
    return checkpoints


def test_the_best_is_the_last_one_that_is_not_too_far() -> None:
    checkpoints = filled([10, 20, 30])

    assert checkpoints.best(9) is None
    for limit, position in ((10, 10), (29, 20), (30, 30), (99, 30)):
        found = checkpoints.best(limit)
        assert found is not None
        assert found.position == position


def test_over_the_bound_the_one_goes_that_costs_least_to_do_without() -> None:
    kept = filled([100, 200, 205, 400, 500]).kept

    assert [one.position for one in kept] == [100, 200, 400, 500]


def test_a_state_that_alone_is_over_the_bytes_is_still_kept_as_the_newest() -> None:
    kept = filled([10, 20], size=600, max_bytes=500).kept

    assert [one.position for one in kept] == [20]


def test_the_same_position_again_is_not_saved_again() -> None:
    checkpoints = filled([10])
    made: list[int] = []

    checkpoints.add(10, lambda: made.append(1) or Checkpoint(10, b""))  # type: ignore[func-returns-value]

    assert made == []


@given(positions, st.integers(0, 1000))
def test_bounds_hold_and_nothing_beyond_a_cut_stays(at: list[int], cut: int) -> None:
    checkpoints = filled(at, max_count=5, max_bytes=35)

    assert len(checkpoints.kept) <= 3
    if at:
        assert checkpoints.kept[-1].position == at[-1]

    checkpoints.forget_after(cut)

    assert all(one.position <= cut for one in checkpoints.kept)
