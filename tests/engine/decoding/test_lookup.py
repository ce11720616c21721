from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.engine.decoding.lookup import Lookup

tokens = st.lists(st.integers(0, 3), max_size=60)


def longest_like(sequence: list[int], place: int) -> int:
    """How many tokens before `place` are the same as at the sequence's end, by hand."""
    length = 0
    while length < place and sequence[place - 1 - length] == sequence[-1 - length]:
        length += 1
    return length


def test_what_followed_the_same_words_before_is_proposed() -> None:
    match = Lookup([1, 2, 3, 4, 5, 9, 1, 2, 3]).propose(2)

    assert match is not None
    assert (match.tokens, match.length) == ((4, 5), 3)


def test_the_longest_like_run_wins_over_a_later_one() -> None:
    sequence = [7, 8, 1, 2, 3, 4, 0, 9, 1, 2, 3, 5, 7, 8, 1, 2, 3]

    match = Lookup(sequence).propose(1)

    assert match is not None
    assert (match.tokens, match.length) == ((4,), 5)


def test_nothing_is_proposed_where_nothing_came_before() -> None:
    assert Lookup([1, 2, 3, 4]).propose(3) is None
    assert Lookup([1, 2]).propose(3) is None
    assert Lookup([1, 1, 1, 1]).propose(0) is None


def test_what_repeats_to_the_end_goes_on_repeating() -> None:
    match = Lookup([1, 2, 3, 1, 2, 3, 1, 2, 3]).propose(7)

    assert match is not None
    assert match.tokens == (1, 2, 3, 1, 2, 3, 1)


@given(tokens, st.integers(0, 60), st.integers(1, 8))
def test_an_index_that_grows_proposes_what_one_made_at_once_proposes(
    sequence: list[int], cut: int, count: int
) -> None:
    grown = Lookup(sequence[:cut])
    for token in sequence[cut:]:
        grown.extend([token])

    assert len(grown) == len(sequence)
    assert grown.propose(count) == Lookup(sequence).propose(count)


@given(tokens)
def test_a_proposal_follows_a_run_that_is_really_there(sequence: list[int]) -> None:
    match = Lookup(sequence).propose(1)
    places = [place for place in range(3, len(sequence)) if longest_like(sequence, place) >= 3]

    if match is None:
        assert places == []
    else:
        assert match.tokens[0] in {
            sequence[place]
            for place in places
            if min(longest_like(sequence, place), 32) >= match.length
        }
