"""The few lines of a failure that say what went wrong and where."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from veriloop_tui.core.excerpt import excerpt, sanitise

EXCERPT_LIMIT = 1200
_SCAN_LIMIT = 40_000
_FRAME = re.compile(r"(?P<path>[^\s:][^:\n]*):\d+: in ")
_LIBRARY = re.compile(r"(^<)|(^|[/\\])(site-packages|dist-packages|lib[/\\]python3[^/\\]*)[/\\]")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_TELLING = re.compile(r"E\s|>\s|[^\s:][^:\n]*:\d+: ")


def failure_excerpt(texts: Iterable[str]) -> str:
    """At most `EXCERPT_LIMIT` sanitised characters of the failures' texts.

    Frames inside the interpreter and installed libraries are left out; where that is still too
    much, only assertion lines, marked source lines and `path:line` frames stay. Addresses of
    objects, which differ from run to run, are dropped.
    """
    lines = list(_own_lines("\n".join(_ends(text) for text in texts).split("\n")))
    whole = "\n".join(lines).strip("\n")
    if len(whole) <= EXCERPT_LIMIT:
        return whole
    telling = _without_repeats(line for line in lines if _TELLING.match(line))
    return excerpt("\n".join(telling) or whole, EXCERPT_LIMIT)


def _ends(text: str) -> str:
    if len(text) > 2 * _SCAN_LIMIT:
        text = f"{text[:_SCAN_LIMIT]}\n[...]\n{text[-_SCAN_LIMIT:]}"
    return _ADDRESS.sub("", sanitise(text))


def _own_lines(lines: Iterable[str]) -> Iterator[str]:
    """Lines without those of short-style library frames: the frame and its indented source."""
    in_library = False
    for line in lines:
        if frame := _FRAME.match(line):
            in_library = _LIBRARY.search(frame["path"]) is not None
        elif not line.startswith("    "):
            in_library = False
        if not in_library:
            yield line


def _without_repeats(lines: Iterable[str]) -> Iterator[str]:
    before = None
    for line in lines:
        if line != before:
            yield line
        before = line
