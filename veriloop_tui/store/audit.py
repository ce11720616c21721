"""The store's part of fsck: every stored byte is looked at, and every damaged place is named.

A segment is nothing but its blobs, one after another, so each of its bytes belongs to one blob's
stored sum; a gap or an overlap is damage. Bytes past the recorded end of a segment were left by a
crash, carry nothing, and are cut off before the next append. The stat cache only saves work:
a damaged row makes a file be hashed again (`stat_cache`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from veriloop_tui.core.snapshot import SnapshotId
from veriloop_tui.errors import StoreDamaged
from veriloop_tui.store import seal, tree, wal
from veriloop_tui.store.blob import BlobReader, Location, segment_name
from veriloop_tui.store.database import DATABASE_NAME, SEGMENTS_NAME, is_open, naming_damage


def audit_files(directory: Path) -> Iterator[StoreDamaged]:
    """The database's files as they lie there, without SQLite.

    The pages against their sums after a clean close, the write-ahead log after a crash. While the
    database is open in some process there is nothing to compare with.
    """
    if is_open(directory):
        return
    yield from seal.verify(directory / DATABASE_NAME)
    yield from wal.verify(directory / DATABASE_NAME)


def audit_content(connection: sqlite3.Connection, directory: Path) -> Iterator[StoreDamaged]:
    """All segments, blobs and trees that the database knows."""
    segments = directory / SEGMENTS_NAME
    reader = BlobReader(connection, segments)
    with naming_damage("table segments"):
        lengths = dict(connection.execute("SELECT number, length FROM segments"))
        rows = connection.execute(
            "SELECT lower(hex(digest)), segment, offset, length, raw_length, crc"
            " FROM blobs ORDER BY segment, offset"
        ).fetchall()
    ends = dict.fromkeys(lengths, 0)
    damaged = set()
    for location in (Location(*row) for row in rows):
        where = f"{segment_name(location.segment)}, offset {location.offset}"
        if location.offset != ends.get(location.segment):
            yield StoreDamaged(where, "the blobs of the segment do not follow one another")
        ends[location.segment] = location.offset + location.length
        try:
            for _ in reader.unpack(location):
                pass
        except StoreDamaged as error:
            damaged.add(location.digest)
            yield error
    for number, length in lengths.items():
        if ends[number] != length:
            yield StoreDamaged(segment_name(number), "its last bytes belong to no blob")
        path = segments / segment_name(number)
        if not path.is_file() or path.stat().st_size < length:
            yield StoreDamaged(segment_name(number), f"it is shorter than {length} bytes")
    known = {row[0] for row in rows}
    yield from _audit_trees(connection, reader, known, damaged)


def has_snapshot(connection: sqlite3.Connection, snapshot: SnapshotId) -> bool:
    """Whether a snapshot was recorded."""
    try:
        raw = bytes.fromhex(snapshot)
    except ValueError:
        return False
    with naming_damage("table snapshots"):
        return bool(connection.execute("SELECT 1 FROM snapshots WHERE id = ?", (raw,)).fetchall())


def _audit_trees(
    connection: sqlite3.Connection, reader: BlobReader, known: set[str], damaged: set[str]
) -> Iterator[StoreDamaged]:
    with naming_damage("table snapshots"):
        todo = [row[0] for row in connection.execute("SELECT lower(hex(id)) FROM snapshots")]
    seen: set[str] = set()
    while todo:
        digest = todo.pop()
        if digest in seen or digest in damaged:
            continue
        seen.add(digest)
        if digest not in known:
            yield StoreDamaged(f"tree {digest}", "it is missing")
            continue
        try:
            children = tree.decode(reader.read(digest))
        except ValueError as error:
            yield StoreDamaged(f"tree {digest}", str(error))
            continue
        for child in children:
            if child.kind == "directory":
                todo.append(child.digest)
            elif child.digest not in known:
                yield StoreDamaged(f"tree {digest}", f"the bytes of {child.name} are missing")
