"""Measured losses on the disk: one file per model, to which one chunk after the other is added.

Little-endian: `VLQLOSS1`, u32 rows per chunk, then for each chunk u32 its number, f64 seconds of
decoding, f32 losses of all `statistics.FIELDS`, u32 crc32 of these. A writer that was killed leaves
at most a torn end, which is cut off; anything else that does not fit is an error.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
import threading
import zlib
from pathlib import Path
from typing import Final

import numpy as np

from quant.losses.statistics import FIELDS, Scores, Values
from veriloop_tui.errors import DiskTooSmall, RecordInvalid

_MAGIC: Final = b"VLQLOSS1"
_START: Final = struct.Struct("<8sI")
_HEAD: Final = struct.Struct("<Id")
_CRC: Final = struct.Struct("<I")


class Record:
    """The losses of one model. Safe to use from several threads."""

    def __init__(self, path: Path, rows: int) -> None:
        """Read what there is. Raises `RecordInvalid`, `DiskTooSmall`."""
        self._path, self._rows = path, rows
        self._lock = threading.Lock()
        self._losses: dict[int, Values] = {}
        self._seconds: dict[int, float] = {}
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as problem:
            raise RecordInvalid(str(path), problem.strerror or str(problem)) from problem
        self._end = self._read()
        if not self._end:
            self._write(_START.pack(_MAGIC, rows))

    @property
    def chunks(self) -> frozenset[int]:
        """The numbers of the chunks that are in it."""
        with self._lock:
            return frozenset(self._losses)

    def has(self, chunk: int) -> bool:
        """Whether a chunk is in it."""
        return chunk in self._losses

    def losses(self, chunk: int) -> Values:
        """The losses of a chunk that is in it, one row for each of `FIELDS`."""
        return self._losses[chunk]

    def add(self, chunk: int, losses: Values, seconds: float) -> None:
        """Add a chunk; one that is there stays as it is. Raises `DiskTooSmall`, `RecordInvalid`."""
        with self._lock:
            if chunk in self._losses:
                return
            data = _HEAD.pack(chunk, seconds) + losses.astype("<f4").tobytes()
            self._write(data + _CRC.pack(zlib.crc32(data)))
            self._losses[chunk], self._seconds[chunk] = losses.copy(), seconds

    def scores(self) -> Scores | None:
        """All losses in the order of the chunks, `None` if there are none."""
        with self._lock:
            if not self._losses:
                return None
            whole = np.stack([self._losses[chunk] for chunk in sorted(self._losses)], axis=1)
        return Scores(*whole)

    def seconds_per_chunk(self) -> float | None:
        """How long decoding one took on average, `None` if none was decoded."""
        with self._lock:
            return sum(self._seconds.values()) / len(self._seconds) if self._seconds else None

    def close(self) -> None:
        """Close the file; what was read stays."""
        os.close(self._file)

    def _read(self) -> int:
        """Take in all whole chunks, cut a torn end off; the size that is left."""
        size = os.fstat(self._file).st_size
        if size < _START.size:
            os.ftruncate(self._file, 0)
            return 0
        magic, rows = _START.unpack(os.pread(self._file, _START.size, 0))
        if magic != _MAGIC or rows != self._rows:
            raise RecordInvalid(
                str(self._path), "it is no record of this measurement; move it away"
            )
        length = _HEAD.size + 4 * len(FIELDS) * rows + _CRC.size
        at = _START.size
        while at + length <= size:
            data = os.pread(self._file, length, at)
            body = data[: -_CRC.size]
            if _CRC.unpack(data[-_CRC.size :])[0] != zlib.crc32(body):
                if at + length < size:
                    problem = f"bytes from {at} on are not what was written; move it away"
                    raise RecordInvalid(str(self._path), problem)
                break
            chunk, seconds = _HEAD.unpack(body[: _HEAD.size])
            losses = np.frombuffer(body, "<f4", offset=_HEAD.size).astype(np.float32)
            self._losses[chunk] = losses.reshape(len(FIELDS), rows)
            self._seconds[chunk] = seconds
            at += length
        os.ftruncate(self._file, at)
        return at

    def _write(self, data: bytes) -> None:
        """Add bytes at the end, all or none."""
        try:
            written = os.pwrite(self._file, data, self._end)
            if written < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file)
        except OSError as problem:
            os.ftruncate(self._file, self._end)
            raise disk_error(self._path, len(data), problem) from problem
        self._end += len(data)


def disk_error(path: Path, needed: int, problem: OSError) -> DiskTooSmall | RecordInvalid:
    """What a failed write to a file is told as."""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskTooSmall(str(path.parent), needed, shutil.disk_usage(path.parent).free)
    return RecordInvalid(str(path), problem.strerror or str(problem))
