"""Blobs: byte strings named by their sha256, each stored once, in append-only segment files.

A blob is one zlib stream in a segment; the index in the database says where. The index is the
only truth: bytes of a segment that it does not know (a crash came between the two) are cut off
before the next append. A blob's bytes are on disk before its index row is committed. Content is
never interpreted: no filters, no attributes, nothing is run.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from veriloop_tui.errors import StoreDamaged
from veriloop_tui.store.database import naming_damage, transaction

_LEVEL = 1
_CHUNK = 1 << 20
_BIG = 8 << 20
_PENDING_BYTES = 32 << 20
_SEGMENT_BYTES = 256 << 20
_INCOMING = "incoming-"


@dataclass(frozen=True, slots=True)
class Location:
    """Where a blob lies: `length` bytes at `offset` of a segment, `raw_length` when unpacked."""

    digest: str
    segment: int
    offset: int
    length: int
    raw_length: int
    crc: int


class BlobReader:
    """Reads blobs and verifies them. Raises `StoreDamaged` with segment and offset."""

    def __init__(self, connection: sqlite3.Connection, directory: Path) -> None:
        self._connection = connection
        self._directory = directory
        self._lock = threading.RLock()

    def __contains__(self, digest: str) -> bool:
        return self.locate(digest) is not None

    def locate(self, digest: str) -> Location | None:
        """The index row of a blob, `None` if it is not stored."""
        with self._lock, naming_damage("table blobs"):
            row = self._connection.execute(
                "SELECT segment, offset, length, raw_length, crc FROM blobs WHERE digest = ?",
                (bytes.fromhex(digest),),
            ).fetchone()
        return None if row is None else Location(digest, *row)

    def read(self, digest: str) -> bytes:
        """The whole blob."""
        return b"".join(self.chunks(digest))

    def chunks(self, digest: str) -> Iterator[bytes]:
        """The blob in pieces of bounded size; what was yielded is verified only at the end."""
        location = self.locate(digest)
        if location is None:
            raise StoreDamaged("table blobs", f"blob {digest} is missing")
        return self.unpack(location)

    def unpack(self, location: Location) -> Iterator[bytes]:
        """The bytes at a location, in pieces; checks stored sum, length and sha256 at the end."""
        where = f"{segment_name(location.segment)}, offset {location.offset}"
        inflate, sha, crc, produced = zlib.decompressobj(), hashlib.sha256(), 0, 0
        try:
            for packed in self._packed(location, where):
                crc = zlib.crc32(packed, crc)
                for piece in _inflate(inflate, packed):
                    produced += len(piece)
                    if produced > location.raw_length:
                        raise StoreDamaged(where, f"blob {location.digest} is too long")
                    sha.update(piece)
                    yield piece
        except zlib.error as error:
            raise StoreDamaged(where, f"blob {location.digest}: {error}") from error
        if (
            crc != location.crc
            or not inflate.eof
            or inflate.unused_data
            or produced != location.raw_length
            or sha.hexdigest() != location.digest
        ):
            raise StoreDamaged(where, f"blob {location.digest} is not what was written")

    def _packed(self, location: Location, where: str) -> Iterator[bytes]:
        path = self._directory / segment_name(location.segment)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise StoreDamaged(where, f"the segment cannot be opened: {error}") from error
        try:
            offset, left = location.offset, location.length
            if offset < 0 or left < 0:
                raise StoreDamaged(where, f"blob {location.digest} has an impossible place")
            while left:
                packed = os.pread(fd, min(left, _CHUNK), offset)
                if not packed:
                    raise StoreDamaged(where, f"blob {location.digest} is cut short")
                yield packed
                offset += len(packed)
                left -= len(packed)
        finally:
            os.close(fd)


class BlobStore(BlobReader):
    """Reads and adds blobs. `stored_bytes` counts what the segments take on disk."""

    def __init__(self, connection: sqlite3.Connection, directory: Path) -> None:
        super().__init__(connection, directory)
        for leftover in directory.glob(f"{_INCOMING}*"):
            leftover.unlink(missing_ok=True)

    def stored_bytes(self) -> int:
        """Bytes of all segments."""
        with self._lock, naming_damage("table segments"):
            (total,) = self._connection.execute(
                "SELECT coalesce(sum(length), 0) FROM segments"
            ).fetchone()
        return int(total)

    @contextmanager
    def batch(self) -> Iterator[BlobBatch]:
        """Add many blobs with few waits for the disk; all are durable when the context ends."""
        with self._lock:
            batch = BlobBatch(self, self._connection, self._directory)
            yield batch
            batch.flush()

    def put(self, content: bytes) -> str:
        """Add one blob; its digest."""
        with self.batch() as batch:
            return batch.add(content)


class BlobBatch:
    """Blobs on their way into a segment."""

    def __init__(self, store: BlobStore, connection: sqlite3.Connection, directory: Path) -> None:
        self._store = store
        self._connection = connection
        self._directory = directory
        self._pending: dict[str, tuple[bytes, int]] = {}
        self._pending_bytes = 0

    def add(self, content: bytes) -> str:
        """Add a byte string; its digest."""
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self._pending and digest not in self._store:
            packed = zlib.compress(content, _LEVEL)
            self._pending[digest] = (packed, len(content))
            self._pending_bytes += len(packed)
            if self._pending_bytes >= _PENDING_BYTES:
                self.flush()
        return digest

    def add_open_file(self, fd: int, size: int) -> tuple[str, int]:
        """Add what an open file holds, read from its start; digest and bytes read.

        `size` is what the file is expected to have; one byte more is read, which tells the caller
        that it grew. A big file is never wholly in memory.
        """
        if size > _BIG:
            return self._add_big(fd, size + 1)
        content = b"".join(read_from_start(fd, size + 1))
        return self.add(content), len(content)

    def flush(self) -> None:
        """Make everything added so far durable."""
        if not self._pending:
            return
        with naming_damage("table blobs"), transaction(self._connection):
            # Another process may have stored the same bytes since they were added here.
            new = {d: p for d, p in self._pending.items() if d not in self._store}
            number, end = self._tail()
            data = b"".join(packed for packed, _ in new.values())
            fd = os.open(
                self._directory / segment_name(number),
                os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
                0o600,
            )
            try:
                found = os.fstat(fd).st_size
                if found < end:
                    raise StoreDamaged(
                        segment_name(number), f"it has {found} bytes, {end} were written"
                    )
                os.ftruncate(fd, end)
                _write_at(fd, data, end)
                os.fsync(fd)
            finally:
                os.close(fd)
            if end == 0:
                _sync(self._directory)
            self._record_segment(number, end + len(data))
            rows = []
            for digest, (packed, raw) in new.items():
                crc = zlib.crc32(packed)
                rows.append((bytes.fromhex(digest), number, end, len(packed), raw, crc))
                end += len(packed)
            self._insert(rows)
        self._pending.clear()
        self._pending_bytes = 0

    def _add_big(self, fd: int, limit: int) -> tuple[str, int]:
        """A big file gets a segment of its own, written aside so that nobody waits for it."""
        draft = self._directory / f"{_INCOMING}{secrets.token_hex(8)}"
        sha, deflate, crc, raw, length = hashlib.sha256(), zlib.compressobj(_LEVEL), 0, 0, 0
        out_fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(out_fd, "wb") as out:
                for chunk in read_from_start(fd, limit):
                    sha.update(chunk)
                    raw += len(chunk)
                    packed = deflate.compress(chunk)
                    crc, length = zlib.crc32(packed, crc), length + len(packed)
                    out.write(packed)
                packed = deflate.flush()
                crc, length = zlib.crc32(packed, crc), length + len(packed)
                out.write(packed)
                out.flush()
                digest = sha.hexdigest()
                if digest in self._pending or digest in self._store:
                    return digest, raw
                os.fsync(out.fileno())
            with naming_damage("table blobs"), transaction(self._connection):
                if digest in self._store:
                    return digest, raw
                number = self._last_segment() + 1
                draft.replace(self._directory / segment_name(number))
                _sync(self._directory)
                self._record_segment(number, length)
                self._insert([(sha.digest(), number, 0, length, raw, crc)])
            return digest, raw
        finally:
            draft.unlink(missing_ok=True)

    def _last_segment(self) -> int:
        (number,) = self._connection.execute(
            "SELECT coalesce(max(number), 0) FROM segments"
        ).fetchone()
        return int(number)

    def _tail(self) -> tuple[int, int]:
        row = self._connection.execute(
            "SELECT number, length FROM segments ORDER BY number DESC LIMIT 1"
        ).fetchone()
        if row is None:
            return 1, 0
        number, length = row
        return (number, length) if length < _SEGMENT_BYTES else (number + 1, 0)

    def _record_segment(self, number: int, length: int) -> None:
        self._connection.execute(
            "INSERT INTO segments VALUES (?, ?)"
            " ON CONFLICT (number) DO UPDATE SET length = excluded.length",
            (number, length),
        )

    def _insert(self, rows: list[tuple[bytes, int, int, int, int, int]]) -> None:
        self._connection.executemany("INSERT INTO blobs VALUES (?, ?, ?, ?, ?, ?)", rows)


def segment_name(number: int) -> str:
    """The file name of a segment."""
    return f"{number:06d}.seg"


def _inflate(inflate: zlib._Decompress, packed: bytes) -> Iterator[bytes]:
    """Pieces of at most `_CHUNK` bytes, until the input and what zlib holds back are used up."""
    piece = inflate.decompress(packed, _CHUNK)
    while piece:
        yield piece
        piece = inflate.decompress(inflate.unconsumed_tail, _CHUNK)


def read_from_start(fd: int, limit: int) -> Iterator[bytes]:
    """An open file's bytes in pieces, at most `limit`, so that a growing file has an end."""
    offset = 0
    while offset < limit and (chunk := os.pread(fd, min(_CHUNK, limit - offset), offset)):
        yield chunk
        offset += len(chunk)


def _write_at(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
