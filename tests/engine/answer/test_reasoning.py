import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.engine.answer.reasoning import (
    DEFAULT_MARKERS,
    KNOWN_MARKERS,
    ThinkingMarkers,
    markers_in,
    thinking_tokens,
)


@pytest.mark.parametrize("markers", KNOWN_MARKERS)
def test_the_markers_of_a_template_are_found_in_its_source(markers: ThinkingMarkers) -> None:
    assert markers_in(f"{{% if x %}}{markers.start}{{% endif %}}{markers.end}") == markers


def test_a_template_without_markers_knows_of_no_thinking() -> None:
    assert markers_in("{{ messages }} I think </thinks>") is None
    assert markers_in("only a <think>") is None


def test_thinking_is_open_until_its_end_marker() -> None:
    assert DEFAULT_MARKERS.open_in("<think> well")
    assert DEFAULT_MARKERS.open_in("<think>a</think>b<think>c")
    assert not DEFAULT_MARKERS.open_in("<think>a</think>b")
    assert not DEFAULT_MARKERS.open_in("a")


def test_thinking_takes_three_quarters_or_what_was_wanted() -> None:
    assert thinking_tokens(1000, None, 3) == 750
    assert thinking_tokens(1000, 100, 3) == 100
    assert thinking_tokens(1000, 0, 3) == 0


@given(st.integers(1, 10_000), st.none() | st.integers(0, 20_000), st.integers(1, 10))
def test_an_answer_always_has_room(room: int, wanted: int | None, n_closing: int) -> None:
    tokens = thinking_tokens(room, wanted, n_closing)

    assert tokens < 1 or tokens + n_closing < room
    assert tokens <= room * 3 // 4
