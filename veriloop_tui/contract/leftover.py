"""What is read once a command has ended: its report and its output. All of it is hostile."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from veriloop_tui.core.excerpt import sanitise

REPORT_NAME = "report"

_TAIL_CHARACTERS = 4000


def collect_report(out: Path, limit: int) -> tuple[bytes | None, str]:
    """The report's bytes, or `None` and why it was refused; nothing is followed or waited for."""
    try:
        wire = _open_report(out)
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"left a report that cannot be opened ({error.strerror})"
    try:
        if not stat.S_ISREG(os.fstat(wire).st_mode):
            return None, "left a report that is no regular file"
        with os.fdopen(os.dup(wire), "rb") as file:
            content = file.read(limit + 1)
    finally:
        os.close(wire)
    if len(content) > limit:
        return None, f"left a report of more than {limit} bytes"
    return content, ""


def _open_report(out: Path) -> int:
    folder = os.open(out, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        return os.open(REPORT_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)


def output_digest(output: Path, limit: int) -> str:
    """Hex sha256 of the first `limit` bytes of the output."""
    hashed = hashlib.sha256()
    left = limit
    with output.open("rb") as file:
        while left > 0 and (piece := file.read(min(left, 1 << 20))):
            hashed.update(piece)
            left -= len(piece)
    return hashed.hexdigest()


def output_tail(output: Path) -> str:
    """The sanitised, bounded end of the output."""
    with output.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4 * _TAIL_CHARACTERS))
        text = file.read(4 * _TAIL_CHARACTERS).decode("utf-8", errors="replace")
    return sanitise(text)[-_TAIL_CHARACTERS:]
