"""Splicing: only the wanted lines change, and kept lines keep their very bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.errors import InvalidEdit
from veriloop_tui.proposer.splice import file_lines, replace_lines


def _replace(content: bytes, search: str, replacement: str) -> bytes:
    return replace_lines(content, "a.py", search.split("\n"), replacement.split("\n"))


def test_line_ends_of_the_file_are_kept_and_given_to_new_lines() -> None:
    assert _replace(b"a\r\nb\r\nc\r\n", "b", "x\ny") == b"a\r\nx\r\ny\r\nc\r\n"


def test_a_byte_order_mark_stays_and_does_not_hide_the_first_line() -> None:
    assert _replace(b"\xef\xbb\xbfa\nb\n", "a", "x") == b"\xef\xbb\xbfx\nb\n"


def test_a_missing_final_newline_stays_missing() -> None:
    assert _replace(b"a\nb", "b", "x\ny") == b"a\nx\ny"
    assert _replace(b"a\nb", "b", "b\ny") == b"a\nb\ny"


def test_a_final_newline_stays_where_the_last_lines_go() -> None:
    assert replace_lines(b"a\nb\n", "a.py", ["b"], []) == b"a\n"


def test_bytes_that_are_not_utf8_stay_as_they_are() -> None:
    assert _replace(b"name = '\xe9'\nx = 1\n", "x = 1", "x = 2") == b"name = '\xe9'\nx = 2\n"


def test_trailing_blanks_may_differ_and_kept_lines_keep_theirs() -> None:
    content = b"def f():  \n\treturn 1 \t\n"
    assert _replace(content, "def f():\n\treturn 1", "def f():\n\tx = 1\n\treturn 1") == (
        b"def f():  \n\tx = 1\n\treturn 1 \t\n"
    )


def test_indentation_must_match_and_the_nearest_text_is_told() -> None:
    with pytest.raises(InvalidEdit, match="not in the file") as caught:
        _replace(b"if a:\n\treturn 1\n\nz\n", "if a:\n    return 1", "x")
    assert caught.value.nearest == "if a:\n\treturn 1\n"


def test_a_near_miss_names_the_most_alike_line() -> None:
    with pytest.raises(InvalidEdit) as caught:
        _replace(b"import os\ntotal = price * count\nprint(total)\n", "total = prices * count", "x")
    assert caught.value.nearest == "total = price * count\n"


def test_two_places_are_one_too_many() -> None:
    with pytest.raises(InvalidEdit, match=r"2 places \(lines 1, 3\)"):
        _replace(b"x\ny\nx\n", "x", "z")


def test_an_exact_place_wins_over_one_that_differs_in_trailing_blanks() -> None:
    assert _replace(b"x \nx\n", "x", "z") == b"x \nz\n"


_LINE = st.binary(max_size=6).filter(lambda raw: b"\n" not in raw)
_END = st.sampled_from([b"\n", b"\r\n"])


@given(
    before=st.lists(st.tuples(_LINE, _END)),
    after=st.lists(st.tuples(_LINE, _END)),
    final=_LINE,
    end=_END,
    new=st.lists(st.text("ab\t ", max_size=5), max_size=4),
)
def test_every_byte_outside_the_match_is_kept(
    before: list[tuple[bytes, bytes]],
    after: list[tuple[bytes, bytes]],
    final: bytes,
    end: bytes,
    new: list[str],
) -> None:
    head = b"".join(line + eol for line, eol in before)
    tail = b"".join(line + eol for line, eol in after) + final
    result = replace_lines(head + b"the one place" + end + tail, "a.py", ["the one place"], new)
    assert result.startswith(head)
    if tail:
        assert result.endswith(tail)
        middle = result[len(head) : len(result) - len(tail)]
        assert [line.strip() for line in file_lines(middle)] == [n.strip().encode() for n in new]


@given(st.lists(st.tuples(_LINE, _END)), _LINE)
def test_lines_join_to_the_file(lines: list[tuple[bytes, bytes]], final: bytes) -> None:
    content = b"".join(line + end for line, end in lines) + final
    assert b"".join(file_lines(content)) == content
