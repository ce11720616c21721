"""Unified diffs for people: bounded, and never a reason to fail."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from veriloop_tui.core.excerpt import excerpt, one_line, visible
from veriloop_tui.core.snapshot import Change, Delete, Write

MAX_BYTES = 400_000
MAX_CHARACTERS = 60_000


def unified_diff(changes: Iterable[Change], read: Callable[[str], bytes | None]) -> str:
    """The sanitised unified diff of `changes`; `read` gives the old bytes, `None` if absent.

    At most `MAX_CHARACTERS` long; files that are binary or over `MAX_BYTES` are only named.
    """
    parts = [_one_file(change, read(change.path)) for change in changes]
    return excerpt(visible("\n".join(parts)), MAX_CHARACTERS)


def _one_file(change: Change, before: bytes | None) -> str:
    after = change.content if isinstance(change, Write) else None
    name = one_line(change.path, 500)
    old_name = "/dev/null" if before is None else f"a/{name}"
    new_name = "/dev/null" if isinstance(change, Delete) else f"b/{name}"
    sizes = [len(side) for side in (before, after) if side is not None]
    if max(sizes, default=0) > MAX_BYTES:
        return f"--- {old_name}\n+++ {new_name}\n(too large to show)"
    try:
        old, new = (_lines(before), _lines(after))
    except UnicodeDecodeError:
        return f"--- {old_name}\n+++ {new_name}\n(not UTF-8)"
    return "\n".join(difflib.unified_diff(old, new, old_name, new_name, lineterm=""))


def _lines(data: bytes | None) -> list[str]:
    return [] if data is None else data.decode("utf-8").replace("\r\n", "\n").split("\n")
