"""Files of `llama-perplexity --kl-divergence-base`: a base's log-probabilities, read and written.

Little-endian: `_logits_`, i32 n_ctx, i32 vocabulary, i32 chunks, i32 tokens of all chunks, then
for each chunk n_ctx - 1 - n_ctx // 2 packed rows (see `quant.scoring`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from quant.scoring import Packed, Tokens, packed_width
from veriloop_tui.errors import UsageError

_MAGIC: Final = b"_logits_"
_HEAD: Final = 20


@dataclass(frozen=True, slots=True)
class LogitsFile:
    """`tokens` of shape (announced chunks, n_ctx); `rows` of shape (whole chunks, rows, width).

    A writer that was killed leaves fewer whole chunks than it announced.
    """

    n_ctx: int
    vocabulary: int
    tokens: Tokens
    rows: Packed

    @property
    def whole(self) -> bool:
        """Whether all announced chunks are there."""
        return len(self.rows) == len(self.tokens)


def read_logits(path: Path, n_ctx: int = 0, vocabulary: int = 0) -> LogitsFile:
    """Map a file, without reading its rows. Raises `UsageError`, also for other sizes than asked.

    0 for `n_ctx` or `vocabulary` takes any.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}.") from problem
    if len(head) < _HEAD or head[:8] != _MAGIC:
        raise UsageError(f"{path} is no file of base logits; llama-perplexity writes them.")
    context, words, chunks = struct.unpack("<3i", head[8:])
    start = _HEAD + 4 * chunks * context
    if context < 4 or words < 1 or chunks < 1 or start > size:
        raise UsageError(f"{path} is damaged: its header does not fit its size; write it again.")
    for what, wanted, got in (("n_ctx", n_ctx, context), ("vocabulary", vocabulary, words)):
        if wanted and wanted != got:
            raise UsageError(f"{path} has {what} {got}, not {wanted}; write it again.")
    rows, width = context - 1 - context // 2, packed_width(words)
    there = min(chunks, (size - start) // (2 * rows * width))
    shape = (there, rows, width)
    tokens = np.memmap(path, "<i4", "r", _HEAD, (chunks, context))
    packed = np.memmap(path, "<u2", "r", start, shape) if there else np.zeros(shape, np.uint16)
    return LogitsFile(context, words, tokens, packed)


def write_logits(path: Path, vocabulary: int, tokens: Tokens, chunks: Iterable[Packed]) -> None:
    """Write all chunks, the file standing under its name only when whole. Raises `OSError`."""
    part = path.with_name(path.name + ".part")
    count, context = tokens.shape
    try:
        with part.open("wb") as file:
            file.write(_MAGIC + struct.pack("<3i", context, vocabulary, count))
            file.write(tokens.astype("<i4").tobytes())
            for packed in chunks:
                file.write(packed.astype("<u2").tobytes())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
