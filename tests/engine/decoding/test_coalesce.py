from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.core.chat import CandidateEnded, ChatEvent, TextDelta
from veriloop_tui.engine.decoding.coalesce import coalesced

deltas = st.builds(TextDelta, st.text("ab", min_size=1, max_size=3), st.integers(0, 2))
events = st.lists(
    deltas | st.builds(CandidateEnded, st.integers(0, 2), st.just("stop")), max_size=30
)


def ticking(step: float) -> Iterator[float]:
    now = 0.0
    while True:
        yield now
        now += step


def passed(given_: list[ChatEvent], step: float) -> list[ChatEvent]:
    return list(coalesced(given_, ticking(step).__next__, interval=1.0))


def texts(of: list[ChatEvent], index: int) -> str:
    return "".join(e.text for e in of if isinstance(e, TextDelta) and e.index == index)


def test_the_first_piece_goes_out_at_once_and_the_next_ones_together() -> None:
    pieces: list[ChatEvent] = [TextDelta(letter) for letter in "abcdef"]

    assert passed(pieces, 0.4) == [TextDelta("a"), TextDelta("bcd"), TextDelta("ef")]


def test_a_slow_answer_goes_out_piece_by_piece() -> None:
    pieces: list[ChatEvent] = [TextDelta(letter) for letter in "abc"]

    assert passed(pieces, 2.0) == pieces


def test_all_text_is_out_before_its_candidate_ends() -> None:
    end = CandidateEnded(0, "stop")

    assert passed([TextDelta("a"), TextDelta("b"), end], 0.0) == [
        TextDelta("a"),
        TextDelta("b"),
        end,
    ]


@given(events, st.floats(0, 3))
def test_nothing_is_lost_or_moved_past_an_end(given_: list[ChatEvent], step: float) -> None:
    given_ = [*given_, CandidateEnded(9, "stop")]
    out = passed(given_, step)

    ends = [event for event in given_ if isinstance(event, CandidateEnded)]
    assert [event for event in out if isinstance(event, CandidateEnded)] == ends
    for index in range(3):
        assert texts(out, index) == texts(given_, index)
