"""fsck: is everything that was recorded still exactly what was written, and if not, where."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from veriloop_tui.core.event import AttemptEnded
from veriloop_tui.core.snapshot import SnapshotId
from veriloop_tui.errors import StoreDamaged, StoreError
from veriloop_tui.ledger.journal import GENESIS, Row, read_bundle, read_event

_TABLES = frozenset({"ledger", "bundles"})


@dataclass(frozen=True, slots=True)
class Damage:
    """One place that is not as it was written."""

    where: str
    problem: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the check needs of the store.

    `connect` opens the database for reading; `files` checks it byte by byte without SQLite;
    `stored` checks all blobs and trees through a connection; `has_snapshot` says whether an id
    was recorded.
    """

    connect: Callable[[], AbstractContextManager[sqlite3.Connection]]
    files: Callable[[], Iterable[StoreDamaged]]
    stored: Callable[[sqlite3.Connection], Iterable[StoreDamaged]]
    has_snapshot: Callable[[sqlite3.Connection, SnapshotId], bool]


def check(surroundings: Surroundings, expected_head: str | None = None) -> tuple[Damage, ...]:
    """Check everything; empty if all is well. Raises `StoreError` only where there is no store.

    `expected_head` is the hash of a row that must be in the chain: without it, rows cut off the
    end of a database that was closed uncleanly cannot be told from rows that never were.
    """
    found = [_damage(error) for error in surroundings.files()]
    try:
        with surroundings.connect() as connection:
            for part in (
                _sqlite(connection),
                _chain(connection, expected_head),
                _bundles(connection, surroundings),
                surroundings.stored(connection),
            ):
                found += _collected(part)
    except StoreDamaged as error:
        found.append(_damage(error))
    except StoreError as error:
        if not found:
            raise
        found.append(Damage("database", str(error)))
    return tuple(dict.fromkeys(found))


def _damage(error: StoreDamaged) -> Damage:
    return Damage(error.where, error.problem)


def _collected(part: Iterable[Damage | StoreDamaged]) -> Iterator[Damage]:
    """What a part finds; if SQLite gives up in the middle, that too."""
    try:
        for item in part:
            yield item if isinstance(item, Damage) else _damage(item)
    except StoreDamaged as error:
        yield _damage(error)
    # SQLite quotes damaged bytes in its messages, which then are no text.
    except (StoreError, sqlite3.Error, UnicodeDecodeError) as error:
        yield Damage("database", f"it cannot be read: {error}")


def _sqlite(connection: sqlite3.Connection) -> Iterator[Damage]:
    for statement in ("PRAGMA integrity_check", "PRAGMA foreign_key_check"):
        for row in connection.execute(statement):
            if row != ("ok",):
                yield Damage("database", " ".join(str(value) for value in row))


def _chain(connection: sqlite3.Connection, expected_head: str | None) -> Iterator[Damage]:
    previous, number, seen = GENESIS, 0, expected_head in (None, GENESIS)
    for row in _rows(connection):
        number += 1
        where = f"ledger row {row.seq}"
        if row.seq != number:
            yield Damage(where, f"row {number} is missing before it")
            number = row.seq
        if row.previous != previous:
            yield Damage(where, "it does not follow the row before it")
        if row.expected_hash() != row.hash:
            yield Damage(where, "its content is not what was written")
        else:
            yield from _collected(_event(row))
        seen = seen or row.hash == expected_head
        previous = row.hash
    if not seen:
        yield Damage("ledger", f"no row has the expected hash {expected_head}: rows are missing")


def _event(row: Row) -> Iterator[Damage]:
    event = read_event(row)
    if event.type != row.type:
        yield Damage(f"ledger row {row.seq}", "its type is not its payload's")
    if isinstance(event, AttemptEnded) and event.bundle != row.bundle:
        yield Damage(f"ledger row {row.seq}", "it names another bundle than its payload")


def _bundles(connection: sqlite3.Connection, surroundings: Surroundings) -> Iterator[Damage]:
    tables = _ledger_tables(connection)
    if len(tables) < 2:
        if tables:
            (missing,) = _TABLES - tables
            yield Damage(f"table {missing}", "it is missing")
        return
    stored = set()
    for name, content in connection.execute("SELECT id, content FROM bundles"):
        stored.add(name)
        try:
            bundle = read_bundle(str(name), content)
        except StoreDamaged as error:
            yield _damage(error)
            continue
        if not surroundings.has_snapshot(connection, bundle.artifact):
            yield Damage(f"bundle {name}", f"its snapshot {bundle.artifact} is missing")
    committed = {
        name for (name,) in connection.execute("SELECT bundle FROM ledger WHERE bundle != ''")
    }
    for name in sorted(committed - stored):
        yield Damage(f"bundle {name}", "it was committed and is missing")
    for name in sorted(stored - committed):
        yield Damage(f"bundle {name}", "no row of the ledger committed it")


def _rows(connection: sqlite3.Connection) -> Iterator[Row]:
    if "ledger" in _ledger_tables(connection):
        for values in connection.execute("SELECT * FROM ledger ORDER BY seq"):
            yield Row(*values)


def _ledger_tables(connection: sqlite3.Connection) -> frozenset[str]:
    """Those of the ledger's tables that are there; a store without any has no ledger yet."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    return _TABLES & names
