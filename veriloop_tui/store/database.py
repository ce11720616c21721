"""The one SQLite database of a workspace, in a data directory that only its owner can enter.

Threads and processes: each component asks for a connection of its own (`connect`) and guards it
with a lock of its own; SQLite's write-ahead log lets them read while one of them writes, and its
write lock orders the writers, also those of other processes. Several processes may hold the
database open; the last one to close it writes the page sums (see `seal`).
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from veriloop_tui.errors import NothingRecorded, StoreDamaged, StoreError, WorkspaceBusy
from veriloop_tui.store import seal, wal

APPLICATION_ID = 0x564C5431
SCHEMA_VERSION = 1
DATABASE_NAME = "store.db"
SEGMENTS_NAME = "segments"
_LOCK_NAME = "store.open"
_BUSY_SECONDS = 30.0

_SCHEMA = (
    "CREATE TABLE segments (number INTEGER PRIMARY KEY, length INTEGER NOT NULL) STRICT",
    "CREATE TABLE blobs (digest BLOB PRIMARY KEY, segment INTEGER NOT NULL REFERENCES segments,"
    " offset INTEGER NOT NULL, length INTEGER NOT NULL, raw_length INTEGER NOT NULL,"
    " crc INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE snapshots (id BLOB PRIMARY KEY REFERENCES blobs) STRICT, WITHOUT ROWID",
    "CREATE TABLE stat_cache (path BLOB PRIMARY KEY, mtime INTEGER NOT NULL,"
    " ctime INTEGER NOT NULL, size INTEGER NOT NULL, inode INTEGER NOT NULL,"
    " mode INTEGER NOT NULL, digest BLOB NOT NULL, rules BLOB NOT NULL) STRICT, WITHOUT ROWID",
)


@contextmanager
def naming_damage(where: str) -> Iterator[None]:
    """Turn SQLite's errors into typed ones: `WorkspaceBusy`, `StoreDamaged` or `StoreError`."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", None)
        primary = code & 0xFF if isinstance(code, int) else None
        if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise WorkspaceBusy(where, "its database is locked") from error
        if primary in (
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_READONLY,
            sqlite3.SQLITE_PERM,
        ):
            raise StoreError(
                f"The store's database could not be used ({where}): {error}. "
                "Check free space and permissions of the data directory."
            ) from error
        raise StoreDamaged(where, str(error)) from error
    except UnicodeDecodeError as error:
        raise StoreDamaged(where, "a message or text holds bytes that are no text") from error


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One write transaction: all of it is durable when the context ends, or none of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


class Database:
    """The database, open for writing. Make one per process and workspace; close it at the end.

    Raises `StoreDamaged` where the file is not what was written at the last close, `StoreError`
    where the directory cannot be used.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / DATABASE_NAME
        self.segments = directory / SEGMENTS_NAME
        _make_private(directory)
        _make_private(self.segments)
        self._connections: list[sqlite3.Connection] = []
        self._holder = os.open(
            directory / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            self._prepare()
        except BaseException:
            self._release()
            raise

    def _prepare(self) -> None:
        fcntl.flock(self._holder, fcntl.LOCK_SH)
        for damage in seal.verify(self.path):
            raise damage
        seal.remove(self.path)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        first = self.connect()
        with naming_damage(str(self.path)):
            _create_schema(first, self.path)

    def connect(self) -> sqlite3.Connection:
        """A new connection (autocommit, may be used from any one thread at a time)."""
        connection = _connect(self.path)
        self._connections.append(connection)
        with naming_damage(str(self.path)):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
        return connection

    def close(self) -> None:
        """Fold the write-ahead log into the file and, if nobody else has it open, seal it."""
        if self._holder < 0:
            return
        try:
            first, *others = self._connections
            for connection in others:
                connection.close()
            with naming_damage(str(self.path)):
                (busy, *_) = first.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            first.close()
            self._connections.clear()
            if not busy and self._alone():
                seal.write(self.path)
        finally:
            self._release()

    def _alone(self) -> bool:
        try:
            fcntl.flock(self._holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        log = wal.wal_path(self.path)
        return not log.exists() or log.stat().st_size == 0

    def _release(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        if self._holder >= 0:
            os.close(self._holder)
            self._holder = -1

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def is_open(directory: Path) -> bool:
    """Whether some process has the database open for writing now."""
    try:
        fd = os.open(directory / _LOCK_NAME, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@contextmanager
def reading(directory: Path) -> Iterator[sqlite3.Connection]:
    """One connection that cannot write, for looking at a store even if it is damaged.

    Raises `NothingRecorded` where there is no store, `StoreDamaged` where SQLite cannot read it.
    """
    path = directory / DATABASE_NAME
    if not path.is_file():
        raise NothingRecorded(str(path))
    connection = _connect_to_read(path)
    try:
        with naming_damage(str(path)):
            connection.execute("PRAGMA query_only = ON")
            _check_schema(connection, path)
        yield connection
    finally:
        connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    with naming_damage(str(path)):
        return sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that leaves the files as they are.

    An ordinary one would, when closed as the last, fold the log of a crash into the database; one
    in read-only mode would leave an empty log behind where there was none.
    """
    log = wal.wal_path(path)
    mode = "ro" if log.exists() and log.stat().st_size else "rw"
    with naming_damage(str(path)):
        return sqlite3.connect(
            f"{path.resolve().as_uri()}?mode={mode}",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )


def _create_schema(connection: sqlite3.Connection, path: Path) -> None:
    with transaction(connection):
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables == 0:
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    _check_schema(connection, path)


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise StoreDamaged(str(path), "it is not a VeriLoop database")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a newer version of VeriLoop (schema {version}, "
            f"this one knows {SCHEMA_VERSION}); use that version."
        )
    if version < SCHEMA_VERSION:
        raise StoreDamaged(str(path), f"its schema version is {version}")


def _make_private(directory: Path) -> None:
    missing = [p for p in (directory, *directory.parents) if not p.exists()]
    try:
        for path in reversed(missing):
            path.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise StoreError(f"{directory} must be a directory that belongs to you.")
        if stat.S_IMODE(found.st_mode) != 0o700:
            directory.chmod(0o700)
    except OSError as error:
        raise StoreError(f"The data directory {directory} cannot be used: {error}.") from error
