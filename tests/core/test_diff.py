"""Diffs for people: bounded and harmless, whatever the files hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.core.diff import MAX_BYTES, MAX_CHARACTERS, unified_diff
from veriloop_tui.core.snapshot import Delete, Write


def test_an_edit_a_creation_and_a_deletion_are_shown() -> None:
    before = {"edit": b"one\ntwo\n", "gone": b"old\n"}
    changes = (Write("edit", b"one\n2\n"), Write("made", b"new\n"), Delete("gone"))
    lines = unified_diff(changes, before.get).splitlines()
    assert {"-two", "+2", "+new", "-old", "--- /dev/null", "+++ /dev/null"} <= set(lines)


def test_binary_and_very_large_files_are_only_named() -> None:
    changes = (Write("binary", b"\xff\x00"), Write("large", b"x" * (MAX_BYTES + 1)))
    text = unified_diff(changes, {"binary": b"\xfe", "large": b""}.get)
    assert "(not UTF-8)" in text
    assert "(too large to show)" in text
    assert len(text) < 200


def test_an_escape_sequence_in_a_file_is_shown_and_hides_nothing() -> None:
    changes = (Write("a", b"before\x1b]0;title\nhidden?\n"),)
    text = unified_diff(changes, lambda path: None)
    assert "\x1b" not in text
    assert "title" in text
    assert "+hidden?" in text


@given(st.binary(max_size=300), st.binary(max_size=300), st.text(min_size=1, max_size=50))
def test_any_bytes_and_any_name_give_a_bounded_text_without_controls(
    old: bytes, new: bytes, name: str
) -> None:
    text = unified_diff((Write(name, new),), {name: old}.get)
    assert len(text) <= MAX_CHARACTERS
    assert not any(ord(char) < 32 and char not in "\n\t" for char in text)
