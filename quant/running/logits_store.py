"""The base's rows of a whole text in a file that grows, and goes on growing after a kill.

`FILE.part` grows; `FILE.chunks` tells the settings and which chunks are whole in it, since several
streams write in any order; `FILE` stands under its name only when all are there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from quant.losses.logits_file import LogitsHeader, LogitsRows, check_header, read_header
from quant.losses.scoring import Tokens
from quant.study.record import disk_error
from veriloop_tui.errors import LogitsFileInvalid


class GrowingRows(LogitsRows):
    """The rows of a file that is being made."""

    def __init__(self, final: Path, vocabulary: int, tokens: Tokens, settings: str) -> None:
        """Go on where the same `settings` were broken off, else begin anew.

        `tokens` are those of all chunks. Raises `LogitsFileInvalid`, `DiskTooSmall`.
        """
        self._final, self._settings = final, settings
        self._part, self._journal = _part(final), _journal(final)
        header = LogitsHeader(tokens.shape[1], vocabulary, tokens, 0)
        self._chunks = self._whole(header)
        try:
            if not self._chunks:
                self._part.unlink(missing_ok=True)
                self._journal.write_text(json.dumps(settings) + "\n", "utf-8")
        except OSError as problem:
            raise disk_error(self._journal, 0, problem) from problem
        super().__init__(self._part, header, write=True)

    def has(self, chunk: int) -> bool:
        """Whether a chunk is whole in it."""
        return chunk in self._chunks

    def finish(self, chunk: int) -> None:
        """Flush a chunk to the disk and note that it is there. Raises `RecordInvalid`."""
        if chunk in self._chunks:
            return
        super().finish(chunk)
        try:
            with self._journal.open("a", encoding="utf-8") as file:
                file.write(f"{chunk}\n")
        except OSError as problem:
            raise disk_error(self._journal, 0, problem) from problem
        self._chunks.add(chunk)

    def publish(self) -> None:
        """Give the file its name, all chunks being there. Raises `RecordInvalid`."""
        try:
            self._part.replace(self._final)
            self._journal.unlink(missing_ok=True)
        except OSError as problem:
            raise disk_error(self._final, 0, problem) from problem

    def _whole(self, header: LogitsHeader) -> set[int]:
        """The chunks that an earlier run with the same settings left."""
        try:
            told, *numbers = self._journal.read_text("utf-8").split("\n")
            if json.loads(told) != self._settings:
                return set()
            there = read_header(self._part)
            check_header(self._part, there, header.vocabulary, header.tokens)
        except (OSError, ValueError, LogitsFileInvalid):
            return set()
        # The last piece has no line end: it is empty, or a number that was cut short.
        return {int(one) for one in numbers[:-1] if one.isdecimal()}


def _part(final: Path) -> Path:
    return final.with_name(final.name + ".part")


def _journal(final: Path) -> Path:
    return final.with_name(final.name + ".chunks")


def remove(final: Path) -> None:
    """Delete a file with all that belongs to it."""
    for path in (final, _part(final), _journal(final)):
        if os.path.lexists(path):
            path.unlink()
