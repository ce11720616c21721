"""The database file: private, sealed at a clean close, and never opened silently when damaged."""

import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from veriloop_tui.errors import StoreDamaged, StoreError, WorkspaceBusy
from veriloop_tui.store import seal, wal
from veriloop_tui.store.audit import audit_content, audit_files
from veriloop_tui.store.blob import BlobStore
from veriloop_tui.store.database import Database, is_open, naming_damage, reading


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def filled(directory: Path) -> None:
    with Database(directory) as database:
        store = BlobStore(database.connect(), database.segments)
        with store.batch() as batch:
            for number in range(60):
                batch.add(random.Random(number).randbytes(200))


def flip(path: Path, offset: int, bits: int = 1) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ bits]))


def test_everything_in_the_data_directory_is_its_owners_alone(tmp_path: Path) -> None:
    os.umask(0o000)
    try:
        directory = tmp_path / "a/b"
        with Database(directory) as database:
            BlobStore(database.connect(), database.segments).put(b"x")
            seen = {path: mode(path) for path in directory.rglob("*")}
    finally:
        os.umask(0o022)
    seen.update({path: mode(path) for path in directory.rglob("*")})
    assert mode(directory) == mode(tmp_path / "a") == 0o700
    assert {path.name: m for path, m in seen.items() if m != 0o600} == {"segments": 0o700}


def test_a_directory_that_others_could_enter_is_closed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    with Database(tmp_path / "data"):
        assert mode(tmp_path / "data") == 0o700


def test_a_data_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(StoreError, match="belongs to you"):
        Database(tmp_path / "link")


def test_writing_is_durable_and_foreign_keys_hold(tmp_path: Path) -> None:
    with Database(tmp_path / "data") as database:
        connection = database.connect()
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("INSERT INTO snapshots VALUES (x'00')")


def test_a_clean_close_leaves_one_file_and_its_sums(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    names = {path.name for path in (tmp_path / "data").iterdir()}
    assert names == {"store.db", "store.sums", "store.open", "segments"}
    assert list(audit_files(tmp_path / "data")) == []


def test_any_flipped_byte_of_the_closed_database_is_named_with_its_page(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    path = tmp_path / "data/store.db"
    draw = random.Random(7)
    size = path.stat().st_size
    for offset in [*range(100), *(draw.randrange(size) for _ in range(150))]:
        bits = draw.randrange(1, 256)
        flip(path, offset, bits)
        (damage,) = audit_files(tmp_path / "data")
        assert f"page {offset // seal.PAGE + 1} " in damage.where
        flip(path, offset, bits)
    assert list(audit_files(tmp_path / "data")) == []


def test_any_flipped_byte_of_the_sums_is_named(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    path = tmp_path / "data/store.sums"
    for offset in range(path.stat().st_size):
        flip(path, offset)
        assert [d.where for d in audit_files(tmp_path / "data")] == [str(path)]
        flip(path, offset)


def test_any_flipped_byte_of_a_segment_is_named(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    (path,) = (tmp_path / "data/segments").iterdir()
    draw = random.Random(8)
    for _ in range(60):
        offset, bits = draw.randrange(path.stat().st_size), draw.randrange(1, 256)
        flip(path, offset, bits)
        with reading(tmp_path / "data") as connection:
            (damage,) = audit_content(connection, tmp_path / "data")
        start = int(damage.where.rpartition(" ")[2])
        assert damage.where.startswith("000001.seg, offset ")
        assert start <= offset < start + 300
        flip(path, offset, bits)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE blobs SET crc = crc + 1 WHERE digest = (SELECT max(digest) FROM blobs)",
        "UPDATE blobs SET raw_length = 1 WHERE digest = (SELECT max(digest) FROM blobs)",
        "UPDATE blobs SET offset = offset + 1 WHERE digest = (SELECT max(digest) FROM blobs)",
        "DELETE FROM blobs WHERE digest = (SELECT max(digest) FROM blobs)",
        "UPDATE segments SET length = length - 1",
        "INSERT INTO snapshots SELECT max(digest) FROM blobs",
    ],
)
def test_an_index_that_is_at_odds_with_the_segments_is_found(
    tmp_path: Path, statement: str
) -> None:
    filled(tmp_path / "data")
    with Database(tmp_path / "data") as database:
        connection = database.connect()
        connection.execute(statement)
        assert list(audit_content(connection, tmp_path / "data"))


def test_a_database_that_changed_while_closed_is_not_opened_for_writing(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    path = tmp_path / "data/store.db"
    flip(path, path.stat().st_size - 1)
    with pytest.raises(StoreDamaged, match="page"):
        Database(tmp_path / "data")
    assert seal.sums_path(path).exists()


def test_a_file_that_is_no_database_is_named_not_a_raw_error(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/store.db").write_bytes(b"not a database" * 500)
    with pytest.raises(StoreDamaged, match=r"store\.db"):
        Database(tmp_path / "data")
    with pytest.raises(StoreDamaged, match=r"store\.db"), reading(tmp_path / "data"):
        pass


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    other = sqlite3.connect(tmp_path / "data/store.db")
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()
    with pytest.raises(StoreDamaged, match="not a VeriLoop database"):
        Database(tmp_path / "data")


def test_a_newer_schema_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with Database(tmp_path / "data") as database:
        database.connect().execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="use that version"):
        Database(tmp_path / "data")


def test_looking_at_a_store_changes_nothing_and_needs_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="Nothing has been recorded"), reading(tmp_path):
        pass
    filled(tmp_path / "data")
    before = (tmp_path / "data/store.db").read_bytes()
    with reading(tmp_path / "data") as connection:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM blobs")
        assert connection.execute("SELECT count(*) FROM blobs").fetchone() == (60,)
    assert (tmp_path / "data/store.db").read_bytes() == before
    assert not wal.wal_path(tmp_path / "data/store.db").exists()
    assert list(audit_files(tmp_path / "data")) == []


def test_looking_at_a_store_after_a_kill_leaves_its_log_as_it_is(tmp_path: Path) -> None:
    killed(tmp_path / "data")
    files = [tmp_path / "data/store.db", wal.wal_path(tmp_path / "data/store.db")]
    before = [path.read_bytes() for path in files]
    with reading(tmp_path / "data") as connection:
        assert connection.execute("SELECT count(*) FROM blobs").fetchone() == (5,)
        assert list(audit_content(connection, tmp_path / "data")) == []
    assert [path.read_bytes() for path in files] == before


def test_only_the_last_to_close_seals(tmp_path: Path) -> None:
    first, second = Database(tmp_path / "data"), Database(tmp_path / "data")
    sums = seal.sums_path(first.path)
    first.close()
    assert not sums.exists()
    BlobStore(second.connect(), second.segments).put(b"written after the first closed")
    second.close()
    assert sums.exists()
    with Database(tmp_path / "data"):
        assert not sums.exists()


KILLED = """
import os, pathlib, signal, sys
from veriloop_tui.store.blob import BlobStore
from veriloop_tui.store.database import Database
database = Database(pathlib.Path(sys.argv[1]))
store = BlobStore(database.connect(), database.segments)
print(*(store.put(b"kept %d" % number) for number in range(5)), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(directory: Path) -> list[str]:
    """The digests of blobs that a process stored before it was killed."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(directory)], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout.split()


def test_what_was_written_before_a_kill_is_there_afterwards(tmp_path: Path) -> None:
    digests = killed(tmp_path / "data")
    assert list(audit_files(tmp_path / "data")) == []
    with Database(tmp_path / "data") as database:
        store = BlobStore(database.connect(), database.segments)
        assert [store.read(d) for d in digests] == [b"kept %d" % n for n in range(5)]
    assert seal.sums_path(tmp_path / "data/store.db").exists()


def test_any_flipped_byte_of_the_log_that_a_kill_leaves_is_named(tmp_path: Path) -> None:
    killed(tmp_path / "data")
    path = wal.wal_path(tmp_path / "data/store.db")
    draw, size = random.Random(5), path.stat().st_size
    assert size > 10 * seal.PAGE
    frame = 24 + seal.PAGE
    headers = [32 + frame * number + byte for number in (0, 3) for byte in range(24)]
    last = range(size - frame, size - frame + 24)
    for offset in [*range(32), *headers, *last, *(draw.randrange(size) for _ in range(100))]:
        bits = draw.randrange(1, 256)
        flip(path, offset, bits)
        (damage,) = audit_files(tmp_path / "data")
        assert str(path) in damage.where
        flip(path, offset, bits)
    assert list(audit_files(tmp_path / "data")) == []


def test_a_log_whose_last_frame_was_cut_off_is_not_damaged(tmp_path: Path) -> None:
    killed(tmp_path / "data")
    path = wal.wal_path(tmp_path / "data/store.db")
    with path.open("ab") as torn:
        torn.write(path.read_bytes()[-3000:])
    assert list(audit_files(tmp_path / "data")) == []


def test_frames_of_an_earlier_log_are_not_damage(tmp_path: Path) -> None:
    """SQLite begins the log anew, over the old frames, once all of them are in the database."""
    script = KILLED.replace(
        "print(",
        "c = database.connect()\n"
        "c.execute('CREATE TABLE filler (x)')\n"
        "c.execute('INSERT INTO filler VALUES (zeroblob(300000))')\n"
        "c.execute('PRAGMA wal_checkpoint(RESTART)')\n"
        "print(",
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "data")], capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert wal.wal_path(tmp_path / "data/store.db").stat().st_size > 300_000
    assert list(audit_files(tmp_path / "data")) == []


def test_files_of_a_database_in_use_are_left_to_sqlite(tmp_path: Path) -> None:
    with Database(tmp_path / "data") as database:
        BlobStore(database.connect(), database.segments).put(b"x")
        assert is_open(tmp_path / "data")
        assert list(audit_files(tmp_path / "data")) == []
    assert not is_open(tmp_path / "data")


def test_a_locked_database_is_told_apart_from_a_damaged_one(tmp_path: Path) -> None:
    with Database(tmp_path / "data") as database:
        database.connect().execute("BEGIN IMMEDIATE")
        impatient = database.connect()
        impatient.execute("PRAGMA busy_timeout = 1")
        with pytest.raises(WorkspaceBusy), naming_damage("here"):
            impatient.execute("BEGIN IMMEDIATE")
