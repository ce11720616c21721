"""Bounded, harmless excerpts of hostile text: test output, model output, file names."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_].*?(?:\x1b\\|\x07|\Z)"  # OSC, DCS, SOS, PM, APC with their text
    r"|\x1b[ -/]*[0-~]?",  # all other escapes
    re.DOTALL,
)
# C0 and C1 controls except tab and newline, bidirectional overrides, and lone surrogates.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_SCAN_FACTOR = 4


def sanitise(text: str) -> str:
    """`text` without escape sequences, control and direction characters; line ends become LF."""
    unified = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", _ESCAPES.sub("", unified))


def visible(text: str) -> str:
    """`text` with nothing taken away: escapes and lone carriage returns become signs.

    For what a user approves, where an escape sequence must not hide what follows it.
    """
    marked = text.replace("\r\n", "\n").replace("\r", "\N{SYMBOL FOR CARRIAGE RETURN}")
    return sanitise(marked.replace("\x1b", "\N{SYMBOL FOR ESCAPE}"))


def excerpt(text: str, limit: int) -> str:
    """At most `limit` characters of the sanitised text: its head and its tail.

    Looks at no more than a fixed multiple of `limit` characters, however long the text is.
    """
    span = limit * _SCAN_FACTOR
    if len(text) > 2 * span:
        head, tail = sanitise(text[:span]), sanitise(text[-span:])
        whole = False
    else:
        head = tail = sanitise(text)
        whole = len(head) <= limit
    if whole:
        return head
    mark = "\n[...]\n"
    if limit <= len(mark):
        return head[:limit]
    keep = limit - len(mark)
    first = keep // 2
    return head[:first] + mark + tail[len(tail) - (keep - first) :]


def one_line(text: str, limit: int) -> str:
    """The sanitised text on one line, at most `limit` characters."""
    line = " ".join(sanitise(text[: limit * _SCAN_FACTOR]).split())
    return line if len(line) <= limit else line[: max(0, limit - 1)] + "…"
