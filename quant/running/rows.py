"""Where the base's packed rows wait until all quants have been held against them.

In lock-step they need not wait at all. Otherwise they are kept in memory for a window of chunks, or
in a file of llama-perplexity's form.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from quant.losses.scoring import Packed, packed_width


class Rows(Protocol):
    """Packed rows by chunk and by place in it. Safe to use from several threads."""

    def put(self, chunk: int, first: int, rows: Packed) -> None:
        """Keep the rows of a chunk from `first` on. Raises `OSError`, `DiskTooSmall`."""

    def get(self, chunk: int, first: int, target: Packed) -> None:
        """Fill `target` with the rows of a chunk from `first` on. Raises `OSError`."""

    def finish(self, chunk: int) -> None:
        """All rows of a chunk have been put. Raises `OSError`."""


class KeptRows:
    """Rows of a window of chunks, in memory."""

    def __init__(self, vocabulary: int, rows: int) -> None:
        """`rows` is how many a chunk has."""
        self._shape = (rows, packed_width(vocabulary))
        self._chunks: dict[int, Packed] = {}

    def put(self, chunk: int, first: int, rows: Packed) -> None:
        """Keep rows."""
        kept = self._chunks.setdefault(chunk, np.empty(self._shape, np.uint16))
        kept[first : first + len(rows)] = rows

    def get(self, chunk: int, first: int, target: Packed) -> None:
        """Copy rows that were put."""
        target[:] = self._chunks[chunk][first : first + len(target)]

    def finish(self, chunk: int) -> None:
        """Nothing is to be done."""
