"""Replacing lines inside a file's bytes, so that every byte outside, and every kept line, stays.

Pure. A kept line is one that the model repeated: its bytes come from the file (tabs, trailing
blanks, line end and encoding as they are), and new lines get the line end of their neighbours.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from difflib import SequenceMatcher

from veriloop_tui.errors import InvalidEdit

_BLANKS = b" \t\r\f\v"
_NEAREST_LINES = 40
_NEAREST_CHARS = 1500
_SEARCHED_LINES = 20_000


def file_lines(content: bytes) -> list[bytes]:
    """The lines with their ends; they join to `content`."""
    return content.splitlines(keepends=True) if b"\r" not in content else _lines_at_lf(content)


def _lines_at_lf(content: bytes) -> list[bytes]:
    parts = content.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def without_bom(content: bytes) -> tuple[bytes, bytes]:
    """The UTF-8 byte order mark, if there is one, and the rest."""
    bom = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
    return bom, content[len(bom) :]


def line_end(line: bytes) -> bytes:
    """The line's own end: CRLF, LF, or nothing."""
    return b"\r\n" if line.endswith(b"\r\n") else b"\n" if line.endswith(b"\n") else b""


def usual_line_end(lines: Sequence[bytes]) -> bytes:
    """The end that most lines have, LF for a file without any."""
    crlf = sum(line.endswith(b"\r\n") for line in lines)
    return b"\r\n" if crlf * 2 > sum(line.endswith(b"\n") for line in lines) else b"\n"


def replace_lines(
    content: bytes, path: str, search: Sequence[str], replacement: Sequence[str]
) -> bytes:
    """`content` with the one place where the lines `search` stand made to read `replacement`.

    Raises `InvalidEdit` where there is no such place (with the nearest text), or several.
    """
    bom, text = without_bom(content)
    lines = file_lines(text)
    old = [line.encode() for line in search]
    start = _find(lines, old, path)
    region = lines[start : start + len(old)]
    new = merge_lines(region, old, [line.encode() for line in replacement], usual_line_end(lines))
    return bom + splice_lines(lines, start, start + len(old), new)


def splice_lines(lines: Sequence[bytes], start: int, stop: int, new: Sequence[bytes]) -> bytes:
    """All lines with those from `start` to `stop` replaced; the final newline stays as it was."""
    end = usual_line_end(lines)
    tail = lines[stop:]
    middle = [line if line_end(line) else line + end for line in new]
    before = b"".join(lines[:start])
    if tail or (lines and line_end(lines[-1])) or not lines:
        return before + b"".join(middle) + b"".join(tail)
    joined = before + b"".join(middle)
    return joined.removesuffix(line_end(joined))


def merge_lines(
    region: Sequence[bytes], old: Sequence[bytes], new: Sequence[bytes], end: bytes
) -> list[bytes]:
    """The lines `new`, those that repeat a line of `old` with that line's bytes of `region`."""
    bare_old = [line.rstrip(_BLANKS) for line in old]
    bare_new = [line.rstrip(_BLANKS) for line in new]
    merged: list[bytes] = []
    matcher = SequenceMatcher(None, bare_old, bare_new, autojunk=False)
    for tag, old_start, old_stop, new_start, new_stop in matcher.get_opcodes():
        if tag == "equal":
            merged += region[old_start:old_stop]
        else:
            merged += [line.rstrip(b"\r") + end for line in new[new_start:new_stop]]
    return merged


def _find(lines: list[bytes], wanted: list[bytes], path: str) -> int:
    exact = _places([line.removesuffix(b"\n").removesuffix(b"\r") for line in lines], wanted)
    if len(exact) == 1:
        return exact[0]
    bare_wanted = [line.rstrip(_BLANKS) for line in wanted]
    places = exact or _places([line.rstrip(_BLANKS + b"\n") for line in lines], bare_wanted)
    if len(places) == 1:
        return places[0]
    if places:
        shown = ", ".join(str(place + 1) for place in places[:8])
        raise InvalidEdit(
            f"the SEARCH part matches {len(places)} places (lines {shown}); give more lines", path
        )
    raise InvalidEdit("the SEARCH part is not in the file", path, _nearest(lines, bare_wanted))


def _places(lines: list[bytes], wanted: list[bytes]) -> list[int]:
    first = wanted[0]
    return [
        start
        for start in range(len(lines) - len(wanted) + 1)
        if lines[start] == first and lines[start : start + len(wanted)] == wanted
    ]


def _nearest(lines: list[bytes], wanted: list[bytes]) -> str:
    """The stretch of the file that looks most like `wanted`: what the model should have copied."""
    stripped = [line.strip() for line in lines[:_SEARCHED_LINES]]
    goal = [line.strip() for line in wanted]
    if not stripped:
        return ""
    common = SequenceMatcher(None, stripped, goal, autojunk=False).find_longest_match()
    if common.size and any(stripped[common.a : common.a + common.size]):
        start = common.a - common.b
    else:
        position, longest = max(enumerate(goal), key=lambda item: len(item[1]))
        matcher = SequenceMatcher(b=longest.decode("utf-8", "replace"), autojunk=False)
        start = max(range(len(stripped)), key=lambda at: _likeness(matcher, stripped[at]))
        start -= position
    start = max(0, start)
    nearest = b"".join(lines[start : start + min(len(goal), _NEAREST_LINES)])
    return nearest.decode("utf-8", "replace")[:_NEAREST_CHARS]


def _likeness(matcher: SequenceMatcher[str], line: bytes) -> float:
    matcher.set_seq1(line.decode("utf-8", "replace")[:300])
    return matcher.real_quick_ratio() and matcher.quick_ratio()
