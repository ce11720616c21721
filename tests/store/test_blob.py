"""Blobs in segment files: stored once, verified when read, harmless when torn."""

import hashlib
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from veriloop_tui.errors import StoreDamaged
from veriloop_tui.store.blob import BlobReader, BlobStore
from veriloop_tui.store.database import Database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def store(database: Database) -> BlobStore:
    return BlobStore(database.connect(), database.segments)


def segment(database: Database) -> Path:
    return database.segments / "000001.seg"


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x10
    path.write_bytes(content)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(contents=st.lists(st.binary(max_size=300), max_size=6))
def test_what_is_put_in_comes_out_under_its_sha256(store: BlobStore, contents: list[bytes]) -> None:
    with store.batch() as batch:
        digests = [batch.add(content) for content in contents]
    assert digests == [hashlib.sha256(content).hexdigest() for content in contents]
    assert [store.read(digest) for digest in digests] == contents


def test_equal_bytes_are_stored_once(store: BlobStore) -> None:
    store.put(b"same" * 100)
    before = store.stored_bytes()
    with store.batch() as batch:
        batch.add(b"same" * 100)
        batch.add(b"same" * 100)
    assert store.stored_bytes() == before > 0


def test_a_flipped_byte_is_named_with_segment_and_offset(
    database: Database, store: BlobStore
) -> None:
    store.put(b"first")
    offset = store.stored_bytes()
    digest = store.put(b"second")
    flip(segment(database), offset + 3)
    with pytest.raises(StoreDamaged, match=f"000001.seg, offset {offset}"):
        store.read(digest)


def test_every_byte_of_a_stored_blob_counts(database: Database, store: BlobStore) -> None:
    digest = store.put(b"text that packs " * 20)
    for offset in range(store.stored_bytes()):
        flip(segment(database), offset)
        with pytest.raises(StoreDamaged):
            store.read(digest)
        flip(segment(database), offset)
    assert store.read(digest) == b"text that packs " * 20


def test_a_torn_tail_is_cut_off_and_does_no_harm(database: Database, store: BlobStore) -> None:
    first = store.put(b"first")
    end = store.stored_bytes()
    with segment(database).open("ab") as torn:
        torn.write(b"half a blob that no index row names")
    again = BlobStore(database.connect(), database.segments)
    second = again.put(b"second")
    assert again.locate(second).offset == end  # type: ignore[union-attr]
    assert (again.read(first), again.read(second)) == (b"first", b"second")
    assert segment(database).stat().st_size == again.stored_bytes()


def test_a_segment_that_lost_its_end_is_named_and_not_written_over(
    database: Database, store: BlobStore
) -> None:
    store.put(os.urandom(500))
    os.truncate(segment(database), 100)
    with pytest.raises(StoreDamaged, match=r"000001\.seg"):
        store.put(b"more")
    assert segment(database).stat().st_size == 100


def test_a_missing_blob_is_named(store: BlobStore) -> None:
    with pytest.raises(StoreDamaged, match="ab" * 32):
        store.read("ab" * 32)


def test_two_stores_on_one_database_do_not_write_over_each_other(database: Database) -> None:
    stores = [BlobStore(database.connect(), database.segments) for _ in range(2)]
    digests = [stores[i % 2].put(f"content {i}".encode()) for i in range(20)]
    reader = BlobReader(database.connect(), database.segments)
    assert [reader.read(d) for d in digests] == [f"content {i}".encode() for i in range(20)]


def test_the_same_bytes_added_by_two_stores_at_once_are_stored_once(database: Database) -> None:
    one, other = (BlobStore(database.connect(), database.segments) for _ in range(2))
    with one.batch() as batch:
        digest = batch.add(b"both have it")
        other.put(b"both have it")
        size = other.stored_bytes()
    assert one.stored_bytes() == size
    assert one.read(digest) == b"both have it"


def test_a_big_file_is_stored_in_pieces_and_comes_back(store: BlobStore, tmp_path: Path) -> None:
    content = random.Random(1).randbytes(9 << 20)
    path = tmp_path / "big"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    with store.batch() as batch:
        small = batch.add(b"small")
        digest, size = batch.add_open_file(fd, len(content))
        assert batch.add_open_file(fd, len(content)) == (digest, size)
    os.close(fd)
    assert size == len(content)
    assert b"".join(store.chunks(digest)) == content
    assert store.read(small) == b"small"
    assert store.read(store.put(b"after")) == b"after"
    assert [p.name for p in tmp_path.glob("data/segments/incoming-*")] == []


def test_a_file_far_larger_than_the_memory_allowed_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as out:
        out.truncate(600 << 20)
    script = """
import os, sys, pathlib
from veriloop_tui.store.blob import BlobStore
from veriloop_tui.store.database import Database
with Database(pathlib.Path(sys.argv[1])) as database:
    store = BlobStore(database.connect(), database.segments)
    fd = os.open(sys.argv[2], os.O_RDONLY)
    with store.batch() as batch:
        digest, size = batch.add_open_file(fd, os.fstat(fd).st_size)
    print(size, sum(len(chunk) for chunk in store.chunks(digest)))
"""
    limit = 300 << 20
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "data2"), str(path)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert done.stdout.split() == [str(600 << 20)] * 2, done.stderr
