"""Server-sent events and bounded documents, however they are cut."""

from __future__ import annotations

import contextlib
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.engine.client.stream import (
    MAX_EVENT,
    GarbledError,
    beginning,
    events,
    json_object,
    whole,
)

OBJECTS = [{"a": 1}, {"b": "Zeile\nzwei"}, {"c": "\u2028é"}]
LINES = ("\n".join(f"data: {json.dumps(one)}\n" for one in OBJECTS) + "\ndata: [DONE]\n\n").encode()


@given(st.lists(st.integers(0, len(LINES)), max_size=6))
def test_how_a_stream_is_cut_does_not_matter(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(LINES)]
    pieces = [LINES[start:end] for start, end in pairwise(places)]
    assert list(events(pieces)) == OBJECTS


def test_other_fields_comments_and_carriage_returns_are_passed_over() -> None:
    data = b': ping\r\n\r\nevent: x\r\nid: 1\r\ndata:{"a": 1}\r\n\r\n'
    assert list(events([data])) == [{"a": 1}]


def test_nothing_is_read_after_the_end() -> None:
    assert list(events([b'data: {"a": 1}\n\ndata: [DONE]\n\ndata: nonsense\n\n'])) == [{"a": 1}]


def test_a_last_event_without_its_line_end_counts() -> None:
    assert list(events([b'data: {"a": 1}'])) == [{"a": 1}]


def test_an_event_beyond_all_measure_is_refused_while_it_arrives() -> None:
    taken = 0

    def endless() -> object:
        nonlocal taken
        while True:
            taken += 1 << 20
            yield b"x" * (1 << 20)

    with pytest.raises(GarbledError, match="too large"):
        list(events(endless()))  # type: ignore[arg-type]
    assert taken <= MAX_EVENT + (2 << 20)


def test_many_small_pieces_without_a_line_end_take_no_more_than_linear_time() -> None:
    pieces = [b"data: " + b'{"a": "'] + [b"x"] * 300_000 + [b'"}\n\n']
    (one,) = events(pieces)
    assert len(one["a"]) == 300_000


def test_a_whole_document_has_a_bound_and_the_beginning_of_one_is_cut() -> None:
    assert whole([b"ab", b"cd"], 4) == b"abcd"
    with pytest.raises(GarbledError):
        whole([b"ab", b"cde"], 4)
    assert beginning(iter([b"ab", b"cde"]), 4) == b"abcd"


@given(st.binary(max_size=60))
def test_any_bytes_are_an_object_or_refused(data: bytes) -> None:
    with contextlib.suppress(GarbledError):
        assert isinstance(json_object(data), dict)
