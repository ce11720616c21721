"""The ledger: one append-only row per event, each bound to the one before by its hash.

The head is not a thing of its own: it is the bundle of the last row that has one, so a commit is
one row of `bundles` and one of `ledger`, in one transaction. The tables live in whatever database
the connection belongs to.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from veriloop_tui.core.bundle import CertifiedBundle
from veriloop_tui.core.canonical import canonical_bytes
from veriloop_tui.core.event import AttemptEnded, Event, ProposalDelta, event_json
from veriloop_tui.errors import SnapshotNotFound, StoreDamaged, StoreError, WorkspaceBusy

GENESIS = "0" * 64
"""What the first row names as the one before it."""

_TABLES = (
    "CREATE TABLE IF NOT EXISTS bundles (id TEXT PRIMARY KEY, content BLOB NOT NULL)"
    " STRICT, WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS ledger (seq INTEGER PRIMARY KEY, run TEXT NOT NULL,"
    " type TEXT NOT NULL, payload BLOB NOT NULL, time REAL NOT NULL, bundle TEXT NOT NULL,"
    " previous TEXT NOT NULL, hash TEXT NOT NULL UNIQUE) STRICT",
    "CREATE INDEX IF NOT EXISTS ledger_bundle ON ledger (bundle) WHERE bundle != ''",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the ledger. `bundle` is the bundle that this row committed, empty if none;
    `time` is in seconds since the epoch; hashes are hex sha256."""

    seq: int
    run: str
    type: str
    payload: bytes
    time: float
    bundle: str
    previous: str
    hash: str

    def expected_hash(self) -> str:
        """The hash over everything else in the row."""
        return row_hash(
            self.seq, self.run, self.type, self.payload, self.time, self.bundle, self.previous
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt as it was recorded, with its place in the ledger."""

    seq: int
    run: str
    time: float
    event: AttemptEnded


@dataclass(frozen=True, slots=True)
class Found:
    """What an abbreviated id stands for."""

    kind: Literal["bundle", "row"]
    id: str


def row_hash(
    seq: int, run: str, kind: str, payload: bytes, time: float, bundle: str, previous: str
) -> str:
    """Hex sha256 over a row's fields in one unambiguous form."""
    # `repr` is exact for a float, and also says something of whatever damage has made of it.
    fields = ["veriloop-ledger-1", seq, run, kind, payload, repr(time), bundle, previous]
    return hashlib.sha256(canonical_bytes(fields)).hexdigest()


@contextmanager
def naming_damage(where: str) -> Iterator[None]:
    """Turn what SQLite says into `WorkspaceBusy`, `StoreError` or `StoreDamaged`."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise WorkspaceBusy(where, "its database is locked") from error
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY):
            raise StoreError(
                f"The ledger could not be used ({where}): {error}. Check the disk's free space."
            ) from error
        raise StoreDamaged(where, str(error)) from error
    except UnicodeDecodeError as error:
        raise StoreDamaged(where, "a message or text holds bytes that are no text") from error


class ReadLedger:
    """The recorded rows and bundles; a database without any is an empty ledger.

    May be used from several threads. Raises `StoreDamaged` for what is not as it was written.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.RLock()

    def head(self) -> str:
        """The id of the workspace's current bundle, empty if there is none."""
        rows = self._select(
            "SELECT bundle FROM ledger WHERE bundle != '' ORDER BY seq DESC LIMIT 1"
        )
        return str(rows[0][0]) if rows else ""

    def chain_head(self) -> str:
        """The hash of the last row; keep it elsewhere to find out later whether rows were cut."""
        rows = self._select("SELECT hash FROM ledger ORDER BY seq DESC LIMIT 1")
        return str(rows[0][0]) if rows else GENESIS

    def rows(self, run: str | None = None) -> tuple[Row, ...]:
        """All rows, or those of one run, oldest first."""
        if run is None:
            found = self._select("SELECT * FROM ledger ORDER BY seq")
        else:
            found = self._select("SELECT * FROM ledger WHERE run = ? ORDER BY seq", run)
        return tuple(Row(*row) for row in found)

    def events(self, run: str | None = None) -> tuple[Event, ...]:
        """All recorded events, or those of one run, oldest first."""
        return tuple(read_event(row) for row in self.rows(run))

    def attempts(self) -> tuple[Attempt, ...]:
        """Every attempt that ended, oldest first."""
        found = self._select("SELECT * FROM ledger WHERE type = 'attempt-ended' ORDER BY seq")
        attempts = []
        for row in (Row(*values) for values in found):
            event = read_event(row)
            if not isinstance(event, AttemptEnded):
                raise StoreDamaged(f"ledger row {row.seq}", "its type is not its payload's")
            attempts.append(Attempt(row.seq, row.run, row.time, event))
        return tuple(attempts)

    def has_bundle(self, bundle_id: str) -> bool:
        """Whether a bundle was committed; recovery asks this of a promotion it finds half done."""
        return bool(self._select("SELECT 1 FROM bundles WHERE id = ?", bundle_id))

    def bundle_ids(self) -> tuple[str, ...]:
        """The id of each commit's bundle, oldest first."""
        return tuple(
            str(row[0])
            for row in self._select("SELECT bundle FROM ledger WHERE bundle != '' ORDER BY seq")
        )

    def bundles(self) -> tuple[CertifiedBundle, ...]:
        """Every bundle, in the order of their commits."""
        return tuple(self.bundle(bundle_id) for bundle_id in self.bundle_ids())

    def bundle(self, bundle_id: str) -> CertifiedBundle:
        """A committed bundle. Raises `SnapshotNotFound`, `StoreDamaged`."""
        rows = self._select("SELECT content FROM bundles WHERE id = ?", bundle_id)
        if not rows:
            raise SnapshotNotFound(bundle_id)
        return read_bundle(bundle_id, rows[0][0])

    def find(self, prefix: str) -> Found:
        """The one bundle or row whose id begins so. Raises `SnapshotNotFound` for none or many."""
        found: set[Found] = set()
        if prefix and all(char in "0123456789abcdef" for char in prefix):
            below = prefix + "g"
            for (name,) in self._select(
                "SELECT id FROM bundles WHERE id >= ? AND id < ? LIMIT 2", prefix, below
            ):
                found.add(Found("bundle", name))
            for (name,) in self._select(
                "SELECT hash FROM ledger WHERE hash >= ? AND hash < ? LIMIT 2", prefix, below
            ):
                found.add(Found("row", name))
        if len(found) != 1:
            raise SnapshotNotFound(prefix)
        return found.pop()

    def _select(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock, naming_damage("ledger"):
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.OperationalError as error:
                if "no such table" in str(error):
                    return []
                raise


class SqliteLedger(ReadLedger):
    """The `Ledger` port. Makes its tables if they are missing. `now` is seconds since the epoch.

    Every append is durable when it returns, if the connection's `synchronous` is FULL.
    """

    def __init__(self, connection: sqlite3.Connection, now: Callable[[], float]) -> None:
        super().__init__(connection)
        self._now = now
        with naming_damage("ledger"):
            for statement in _TABLES:
                connection.execute(statement)

    def append(self, run: str, event: Event) -> None:
        """Add one event to the hash chain, durably. Deltas of a proposal are not kept."""
        if isinstance(event, ProposalDelta):
            return
        with self._writing():
            self._add_row(run, event, "")

    def commit(self, run: str, bundle: CertifiedBundle, event: Event) -> None:
        """Add the bundle, move the head to it and append the event, in one transaction."""
        content = canonical_bytes(bundle)
        bundle_id = hashlib.sha256(content).hexdigest()
        with self._writing():
            self._connection.execute(
                "INSERT OR IGNORE INTO bundles VALUES (?, ?)", (bundle_id, content)
            )
            self._add_row(run, event, bundle_id)

    def _add_row(self, run: str, event: Event, bundle_id: str) -> None:
        last = self._connection.execute(
            "SELECT seq, hash FROM ledger ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        seq, previous = (1, GENESIS) if last is None else (last[0] + 1, last[1])
        payload, time = canonical_bytes(event_json(event)), float(self._now())
        name = row_hash(seq, run, event.type, payload, time, bundle_id, previous)
        self._connection.execute(
            "INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (seq, run, event.type, payload, time, bundle_id, previous, name),
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock, naming_damage("ledger"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def read_event(row: Row) -> Event:
    """The event of a row. Raises `StoreDamaged`."""
    try:
        return _events().validate_python(json.loads(row.payload), strict=False)
    except (ValueError, ValidationError) as error:
        raise StoreDamaged(f"ledger row {row.seq}", f"no event can be read: {error}") from error


def read_bundle(bundle_id: str, content: object) -> CertifiedBundle:
    """A bundle from its stored bytes. Raises `StoreDamaged` if they are not what was written."""
    where = f"bundle {bundle_id}"
    if not isinstance(content, bytes) or hashlib.sha256(content).hexdigest() != bundle_id:
        raise StoreDamaged(where, "its bytes are not what was written")
    try:
        return _bundles().validate_python(json.loads(content))
    except (ValueError, ValidationError) as error:
        raise StoreDamaged(where, f"no bundle can be read: {error}") from error


@cache
def _events() -> TypeAdapter[Event]:
    return TypeAdapter(Annotated[Event, Field(discriminator="type")])


@cache
def _bundles() -> TypeAdapter[CertifiedBundle]:
    return TypeAdapter(CertifiedBundle)
