"""fsck over a whole store: silent when all is well, and naming any changed byte."""

import random
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ledger.samples import attempt_ended, bundle
from veriloop_tui.core.event import Notice
from veriloop_tui.core.snapshot import SnapshotId
from veriloop_tui.errors import StoreError
from veriloop_tui.ledger.fsck import Damage, Surroundings, check
from veriloop_tui.ledger.journal import ReadLedger, SqliteLedger
from veriloop_tui.store.audit import audit_content, audit_files, has_snapshot
from veriloop_tui.store.database import Database, reading
from veriloop_tui.store.snapshots import WorkspaceSnapshots


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a workspace with two commits, closed cleanly."""
    workspace = tmp_path / "workspace"
    (workspace / "pkg").mkdir(parents=True)
    for number in range(20):
        (workspace / f"pkg/m{number}.py").write_text(f"x = {number}\n" * 9)
    directory = tmp_path / "data"
    with Database(directory) as database:
        snapshots = WorkspaceSnapshots(workspace, database, home=Path("/nowhere/home"))
        ledger = SqliteLedger(database.connect(), now=lambda: 1.5)
        parent = ""
        for text in ("one", "two"):
            (workspace / "pkg/m1.py").write_text(text)
            kept = bundle(snapshots.take(), parent)
            parent = kept.bundle_id
            ledger.append("run", Notice(text=text))
            ledger.commit("run", kept, replace(attempt_ended(), bundle=kept.bundle_id))
    return directory


def surroundings(data: Path) -> Surroundings:
    return Surroundings(
        connect=lambda: reading(data),
        files=lambda: audit_files(data),
        stored=lambda connection: audit_content(connection, data),
        has_snapshot=has_snapshot,
    )


def fsck(data: Path, head: str | None = None) -> tuple[Damage, ...]:
    return check(surroundings(data), head)


def unsealed(data: Path, *statements: str) -> None:
    """Change the database behind the program's back, as if it had not been closed cleanly."""
    (data / "store.sums").unlink()
    connection = sqlite3.connect(data / "store.db", isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def flip(path: Path, offset: int, bits: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ bits]))


def test_an_intact_store_has_no_damage(data: Path) -> None:
    assert fsck(data) == ()


def test_any_flipped_byte_anywhere_is_named_and_none_is_a_crash(data: Path) -> None:
    draw = random.Random(3)
    paths = [data / "store.db", data / "store.sums", data / "segments/000001.seg"]
    for path in paths:
        size = path.stat().st_size
        for offset in (*range(min(24, size)), *(draw.randrange(size) for _ in range(100))):
            bits = draw.randrange(1, 256)
            flip(path, offset, bits)
            assert fsck(data), f"{path.name}, byte {offset}"
            flip(path, offset, bits)
    assert fsck(data) == ()


def test_without_page_sums_no_flipped_byte_changes_what_is_recorded_unnoticed(data: Path) -> None:
    """After a crash there are no page sums: a flip is then named, or every row is as it was."""
    before = _recorded(data)
    (data / "store.sums").unlink()
    draw, path = random.Random(4), data / "store.db"
    named = 0
    for _ in range(400):
        offset, bits = draw.randrange(path.stat().st_size), draw.randrange(1, 256)
        original = path.read_bytes()
        flip(path, offset, bits)
        if _fails(data):
            named += 1
        else:
            assert _recorded(data) == before, f"byte {offset}"
        for leftover in ("store.db-wal", "store.db-shm"):
            (data / leftover).unlink(missing_ok=True)
        path.write_bytes(original)
    assert named > 30


def _fails(data: Path) -> bool:
    try:
        return bool(fsck(data))
    except StoreError:
        return True


def _recorded(data: Path) -> list[object]:
    """Every row that carries something: the stat cache only saves work."""
    with reading(data) as connection:
        return [
            connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
            for table in ("ledger", "bundles", "snapshots", "blobs", "segments")
        ]


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("UPDATE ledger SET run = 'other' WHERE seq = 2", "ledger row 2"),
        ("UPDATE ledger SET type = 'run-ended' WHERE seq = 2", "ledger row 2"),
        ("UPDATE ledger SET time = 9e999 WHERE seq = 3", "ledger row 3"),
        ("UPDATE ledger SET bundle = '' WHERE seq = 4", "ledger row 4"),
        ("UPDATE ledger SET payload = CAST('{}' AS BLOB) WHERE seq = 1", "ledger row 1"),
        ("UPDATE ledger SET hash = previous || '0' WHERE seq = 2", "ledger row 2"),
        ("DELETE FROM ledger WHERE seq = 2", "ledger row 3"),
        ("DELETE FROM ledger WHERE seq = 1", "ledger row 2"),
        ("DELETE FROM ledger WHERE seq = 4", "bundle "),
        ("DELETE FROM bundles", "bundle "),
        ("UPDATE bundles SET content = x'7b7d'", "bundle "),
        ("DELETE FROM snapshots", "bundle "),
        ("DROP TABLE ledger", "table ledger"),
        ("DROP TABLE bundles", "table bundles"),
        ("DROP TABLE segments", "database"),
    ],
)
def test_a_changed_row_is_named(data: Path, statement: str, where: str) -> None:
    unsealed(data, statement)
    assert any(damage.where.startswith(where) for damage in fsck(data)), fsck(data)


def test_a_row_rewritten_with_a_hash_of_its_own_breaks_the_chain_after_it(data: Path) -> None:
    with reading(data) as connection:
        row = replace(ReadLedger(connection).rows()[0], run="forged")
    unsealed(
        data, f"UPDATE ledger SET run = 'forged', hash = '{row.expected_hash()}' WHERE seq = 1"
    )
    assert [damage.where for damage in fsck(data)] == ["ledger row 2"]


def test_rows_cut_off_the_end_are_found_by_the_head_that_was_noted(data: Path) -> None:
    with reading(data) as connection:
        head = ReadLedger(connection).chain_head()
    assert fsck(data, head) == ()
    unsealed(
        data,
        "DELETE FROM bundles WHERE id = (SELECT bundle FROM ledger WHERE seq = 4)",
        "DELETE FROM ledger WHERE seq >= 3",
    )
    assert fsck(data) == ()
    (damage,) = fsck(data, head)
    assert head in damage.problem


def test_a_segment_that_is_gone_is_named(data: Path) -> None:
    (data / "segments/000001.seg").unlink()
    assert any("000001.seg" in damage.where for damage in fsck(data))


def test_a_store_that_is_not_there_is_an_error_not_damage(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="Nothing has been recorded"):
        fsck(tmp_path / "nothing")


def test_a_bundle_without_its_snapshot_is_named(tmp_path: Path) -> None:
    with Database(tmp_path / "data") as database:
        ledger = SqliteLedger(database.connect(), now=lambda: 0.0)
        kept = bundle(SnapshotId("ab" * 32))
        ledger.commit("run", kept, replace(attempt_ended(), bundle=kept.bundle_id))
    (damage,) = fsck(tmp_path / "data")
    assert "snapshot" in damage.problem
