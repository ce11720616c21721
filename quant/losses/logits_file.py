"""Files of `llama-perplexity --kl-divergence-base`: a base's log-probabilities, read and written.

Little-endian: `_logits_`, i32 n_ctx, i32 vocabulary, i32 chunks, i32 tokens of all chunks, then
for each chunk n_ctx - 1 - n_ctx // 2 packed rows (see `quant.losses.scoring`).
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np

from quant.losses.scoring import PACKED_HEAD, Packed, Tokens, packed_width
from quant.study.record import disk_error
from veriloop_tui.errors import LogitsFileInvalid

_MAGIC: Final = b"_logits_"
_HEAD: Final = 20


@dataclass(frozen=True, slots=True)
class LogitsHeader:
    """The beginning of a file: `tokens` of shape (announced chunks, n_ctx).

    `whole` chunks are there; a writer that was killed leaves fewer than it announced.
    """

    n_ctx: int
    vocabulary: int
    tokens: Tokens
    whole: int

    @property
    def rows(self) -> int:
        """Packed rows of a chunk."""
        return self.n_ctx - 1 - self.n_ctx // 2

    @property
    def start(self) -> int:
        """Where the rows begin, in bytes."""
        return _HEAD + 4 * self.tokens.size

    @property
    def row_size(self) -> int:
        """Bytes of a row."""
        return 2 * packed_width(self.vocabulary)

    def encode(self) -> bytes:
        """As bytes."""
        head = struct.pack("<3i", self.n_ctx, self.vocabulary, len(self.tokens))
        return _MAGIC + head + self.tokens.astype("<i4").tobytes()


def read_header(path: Path) -> LogitsHeader:
    """The header of a file. Raises `LogitsFileInvalid`."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(_HEAD)
            if len(head) < _HEAD or head[:8] != _MAGIC:
                raise LogitsFileInvalid(str(path), "llama-perplexity did not write it")
            n_ctx, vocabulary, chunks = struct.unpack("<3i", head[8:])
            if n_ctx < 4 or vocabulary < 1 or chunks < 1 or _HEAD + 4 * chunks * n_ctx > size:
                raise LogitsFileInvalid(str(path), "it is damaged or cut short; write it again")
            tokens = np.frombuffer(file.read(4 * chunks * n_ctx), "<i4").astype(np.int32)
    except OSError as problem:
        raise LogitsFileInvalid(str(path), problem.strerror or str(problem)) from problem
    header = LogitsHeader(n_ctx, vocabulary, tokens.reshape(chunks, n_ctx), 0)
    whole = (size - header.start) // (header.rows * header.row_size)
    return LogitsHeader(n_ctx, vocabulary, header.tokens, min(chunks, whole))


def check_header(path: Path, header: LogitsHeader, vocabulary: int, tokens: Tokens) -> None:
    """Refuse a file of another vocabulary or text. Raises `LogitsFileInvalid`.

    `tokens` are those wanted, of shape (chunks, n_ctx). Whether all their rows are there is not
    looked at: a file that grows is checked too.
    """
    count, n_ctx = tokens.shape
    for what, wanted, got in (
        ("n_ctx", n_ctx, header.n_ctx),
        ("a vocabulary of", vocabulary, header.vocabulary),
    ):
        if wanted != got:
            raise LogitsFileInvalid(str(path), f"it has {what} {got}, not {wanted}; write it again")
    same = min(count, len(header.tokens))
    differing = np.argwhere(header.tokens[:same] != tokens[:same])
    if differing.size:
        chunk, position = (int(one) for one in differing[0])
        mine, its = int(tokens[chunk, position]), int(header.tokens[chunk, position])
        problem = f"its text differs in chunk {chunk + 1} at position {position}"
        raise LogitsFileInvalid(str(path), f"{problem}: token {its} in place of {mine}")


def check_whole(path: Path, header: LogitsHeader, chunks: int) -> None:
    """Refuse a file that holds fewer chunks than are wanted. Raises `LogitsFileInvalid`."""
    if header.whole < chunks:
        problem = f"{chunks} chunks are wanted and {header.whole} are whole in it"
        raise LogitsFileInvalid(str(path), f"{problem}; write it again, or limit the chunks")


class LogitsRows:
    """The rows of a file as `rows.Rows`; a context manager. Safe to use from several threads."""

    def __init__(self, path: Path, header: LogitsHeader, *, write: bool) -> None:
        """Open it; to write, the header is put into it first. Raises `LogitsFileInvalid`."""
        self._path, self._header = path, header
        flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
        try:
            self._file = os.open(path, flags | os.O_CLOEXEC, 0o666)
        except OSError as problem:
            raise LogitsFileInvalid(str(path), problem.strerror or str(problem)) from problem
        if write:
            self._write(header.encode(), 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def put(self, chunk: int, first: int, rows: Packed) -> None:
        """Write rows of a chunk from `first` on. Raises `DiskTooSmall`, `RecordInvalid`."""
        self._write(rows.astype("<u2", copy=False).tobytes(), self._place(chunk, first))

    def get(self, chunk: int, first: int, target: Packed) -> None:
        """Read rows of a chunk from `first` on. Raises `LogitsFileInvalid`."""
        place = self._place(chunk, first)
        view = memoryview(target.reshape(-1).data).cast("B")
        try:
            while view and (count := os.preadv(self._file, [view], place)):
                view, place = view[count:], place + count
        except OSError as problem:
            raise LogitsFileInvalid(str(self._path), problem.strerror or str(problem)) from problem
        if view:
            raise LogitsFileInvalid(str(self._path), f"chunk {chunk + 1} is not in it")
        heads = np.ascontiguousarray(target[:, :PACKED_HEAD]).view(np.float32)
        if not np.isfinite(heads).all() or (heads[:, 0] < 0).any():
            raise LogitsFileInvalid(str(self._path), f"chunk {chunk + 1} is damaged")

    def finish(self, chunk: int) -> None:
        """Flush a chunk to the disk. Raises `RecordInvalid`."""
        try:
            os.fsync(self._file)
        except OSError as problem:
            raise disk_error(self._path, 0, problem) from problem

    def _place(self, chunk: int, first: int) -> int:
        header = self._header
        return header.start + (chunk * header.rows + first) * header.row_size

    def _write(self, data: bytes, place: int) -> None:
        view, left = memoryview(data), len(data)
        try:
            while left:
                count = os.pwrite(self._file, view[len(data) - left :], place)
                left, place = left - count, place + count
        except OSError as problem:
            raise disk_error(self._path, left, problem) from problem
