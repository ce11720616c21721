"""Showing files in a prompt: whole where they fit, in part or by name where not. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veriloop_tui.core.obligation import CheckOutcome
from veriloop_tui.proposer.prompt import fenced
from veriloop_tui.proposer.workspace import Workspace, frames

_LISTED = 120
_LEAST = 400


@dataclass(frozen=True, slots=True)
class ShownFiles:
    """The text, the paths shown in full, and the one editable file shown if it is only one."""

    text: str
    shown_whole: frozenset[str]
    only_editable: str


def show_files(
    workspace: Workspace,
    paths: Sequence[str],
    failing: Sequence[CheckOutcome],
    room: int,
) -> ShownFiles:
    """Show `paths`, in order, within about `room` characters; what is left out is named.

    A file too large for the room gets at most a third of it, so that others find theirs.
    """
    listing = _listing(workspace, room // 6)
    room -= len(listing)
    share = room // 3
    parts, whole, left_out = [listing], [], []
    editable: list[str] = []
    for path in paths:
        content = workspace.read(path)
        text = None if content is None else _as_text(content)
        if text is None:
            left_out.append(path)
            continue
        protected = workspace.protects(path)
        note = " (protected)" if protected else ""
        if len(text) + 40 <= room:
            part = f"`{path}`{note}\n{fenced(text)}"
            if "\N{REPLACEMENT CHARACTER}" not in text:
                whole.append(path)
        elif room >= _LEAST and not protected:
            part = _part_of(
                path, text, _line_of_interest(workspace, path, failing), min(room, share)
            )
        else:
            left_out.append(path)
            continue
        parts.append(part)
        room -= len(part)
        if not protected:
            editable.append(path)
    if left_out:
        parts.append(
            f"(No room for these files, or they are not text: {', '.join(left_out)[:800]})"
        )
    only = editable[0] if len(editable) == 1 else ""
    return ShownFiles("\n\n".join(parts), frozenset(whole), only)


def _listing(workspace: Workspace, room: int) -> str:
    """The names of the workspace's files, those near its root first."""
    paths = sorted(workspace.files, key=lambda path: (path.count("/"), path))
    lines: list[str] = []
    for path in paths[:_LISTED]:
        line = path.encode("utf-8", "replace").decode() + (
            " (protected)" if workspace.protects(path) else ""
        )
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    hidden = len(paths) - len(lines)
    more = [f"(and {hidden} more)"] if hidden else []
    return "\n".join(["# Files of the project", *lines, *more])


def _as_text(content: bytes) -> str | None:
    if b"\0" in content:
        return None
    text = content.decode("utf-8-sig", "replace")
    return text.replace("\r\n", "\n")


def _line_of_interest(workspace: Workspace, path: str, failing: Sequence[CheckOutcome]) -> int:
    for outcome in failing:
        for frame in frames(workspace, outcome.excerpt):
            if frame.path == path:
                return frame.line
    return 1


def _part_of(path: str, text: str, line: int, room: int) -> str:
    """Whole lines around `line`, and which ones they are."""
    lines = text.split("\n")
    start = stop = max(0, min(line, len(lines)) - 1)
    left = room - 120
    while start > 0 or stop < len(lines):
        before = stop < len(lines) and (start == 0 or stop - line <= line - start)
        added = lines[stop] if before else lines[start - 1]
        left -= len(added) + 1
        if left < 0:
            break
        start, stop = (start, stop + 1) if before else (start - 1, stop)
    note = f"(only lines {start + 1} to {stop} of {len(lines)})"
    return f"`{path}` {note}\n{fenced(chr(10).join(lines[start:stop]))}"
