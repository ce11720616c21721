"""The ledger's chain, its bundles and its head."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path

import pytest

from tests.ledger.samples import attempt_ended, bundle
from veriloop_tui.core.event import Notice, ProposalDelta
from veriloop_tui.errors import SnapshotNotFound, StoreDamaged
from veriloop_tui.ledger.journal import GENESIS, ReadLedger, SqliteLedger


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    yield opened
    opened.close()


@pytest.fixture
def ledger(connection: sqlite3.Connection) -> SqliteLedger:
    ticks = count(1000)
    return SqliteLedger(connection, now=lambda: float(next(ticks)))


def test_a_new_ledger_has_no_head_and_no_events(ledger: SqliteLedger) -> None:
    assert ledger.head() == ""
    assert ledger.events() == ()
    assert ledger.chain_head() == GENESIS


def test_a_database_without_the_tables_reads_as_an_empty_ledger(
    connection: sqlite3.Connection,
) -> None:
    ledger = ReadLedger(connection)
    assert ledger.head() == ""
    assert ledger.rows() == ()


def test_events_come_back_as_they_were_in_their_order(ledger: SqliteLedger) -> None:
    first, second = Notice(text="a\udc80 \x1b[31m"), attempt_ended()
    ledger.append("run-1", first)
    ledger.append("run-2", second)
    assert ledger.events() == (first, second)
    assert ledger.events("run-2") == (second,)
    (attempt,) = ledger.attempts()
    assert (attempt.run, attempt.time, attempt.event) == ("run-2", 1001.0, second)


def test_deltas_of_a_proposal_are_not_kept(ledger: SqliteLedger) -> None:
    ledger.append("run", ProposalDelta(attempt=1, text="x"))
    assert ledger.rows() == ()


def test_each_row_names_the_hash_of_the_one_before_it(ledger: SqliteLedger) -> None:
    for text in "abc":
        ledger.append("run", Notice(text=text))
    rows = ledger.rows()
    assert [row.previous for row in rows] == [GENESIS, rows[0].hash, rows[1].hash]
    assert all(row.hash == row.expected_hash() for row in rows)
    assert ledger.chain_head() == rows[-1].hash


def test_a_commit_moves_the_head_and_keeps_the_whole_bundle(ledger: SqliteLedger) -> None:
    first = bundle("a" * 64)
    second = bundle("b" * 64, parent=first.bundle_id)
    for each in (first, second):
        ledger.commit("run", each, replace(attempt_ended(), bundle=each.bundle_id))
    assert ledger.head() == second.bundle_id
    assert ledger.bundle(first.bundle_id) == first
    assert ledger.bundles() == (first, second)
    assert ledger.has_bundle(second.bundle_id)
    assert not ledger.has_bundle("c" * 64)


def test_a_commit_that_fails_leaves_neither_bundle_nor_row_nor_head(
    ledger: SqliteLedger, connection: sqlite3.Connection
) -> None:
    connection.execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON ledger BEGIN SELECT RAISE(ABORT, 'full'); END"
    )
    with pytest.raises(StoreDamaged):
        ledger.commit("run", bundle("a" * 64), attempt_ended())
    assert ledger.head() == ""
    assert not ledger.has_bundle(bundle("a" * 64).bundle_id)
    connection.execute("DROP TRIGGER refuse")
    ledger.append("run", Notice(text="goes on"))
    assert len(ledger.rows()) == 1


def test_a_bundle_whose_bytes_changed_is_named(
    ledger: SqliteLedger, connection: sqlite3.Connection
) -> None:
    kept = bundle("a" * 64)
    ledger.commit("run", kept, attempt_ended())
    connection.execute(
        "UPDATE bundles SET content = CAST(replace(content, 'fix it', 'fix at') AS BLOB)"
    )
    with pytest.raises(StoreDamaged, match=kept.bundle_id):
        ledger.bundle(kept.bundle_id)


def test_an_abbreviated_id_finds_the_bundle_or_the_row(ledger: SqliteLedger) -> None:
    kept = bundle("a" * 64)
    ledger.commit("run", kept, attempt_ended())
    row = ledger.rows()[0].hash
    assert ledger.find(kept.bundle_id[:10]).kind == "bundle"
    assert ledger.find(row[:10]).id == row
    for wanted in ("", "zz", "%", "f" * 64):
        with pytest.raises(SnapshotNotFound):
            ledger.find(wanted)


def test_an_abbreviation_of_two_ids_finds_neither(ledger: SqliteLedger) -> None:
    for number in range(17):
        ledger.append("run", Notice(text=str(number)))
    firsts = [row.hash[0] for row in ledger.rows()]
    twice = next(char for char in firsts if firsts.count(char) > 1)
    with pytest.raises(SnapshotNotFound):
        ledger.find(twice)


def test_two_ledgers_on_one_database_keep_one_chain(ledger: SqliteLedger, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    other = SqliteLedger(connection, now=lambda: 5.0)
    for number in range(4):
        (ledger, other)[number % 2].append("run", Notice(text=str(number)))
    rows = ledger.rows()
    assert [row.seq for row in rows] == [1, 2, 3, 4]
    assert all(b.previous == a.hash for a, b in pairwise(rows))
    connection.close()


def test_every_field_of_a_row_is_in_its_hash(ledger: SqliteLedger) -> None:
    ledger.append("run", Notice(text="x"))
    (row,) = ledger.rows()
    others = (
        replace(row, seq=2),
        replace(row, run="other"),
        replace(row, type="other"),
        replace(row, payload=b"{}"),
        replace(row, time=row.time + 1e-9 * row.time),
        replace(row, bundle="b"),
        replace(row, previous="p"),
    )
    assert row.expected_hash() == row.hash
    assert len({row.hash, *(other.expected_hash() for other in others)}) == 8
