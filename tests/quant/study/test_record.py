from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quant.losses.statistics import FIELDS, Values
from quant.study.record import Record
from veriloop_tui.errors import RecordInvalid

ROWS = 3
HEAD = 12
CHUNK = 12 + 4 * len(FIELDS) * ROWS + 4
lenient = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


def losses(chunk: int) -> Values:
    return np.full((len(FIELDS), ROWS), chunk, np.float32)


def written(path: Path, *chunks: int) -> bytes:
    path.unlink(missing_ok=True)
    record = Record(path, ROWS)
    for chunk in chunks:
        record.add(chunk, losses(chunk), 1.5)
    record.close()
    return path.read_bytes()


@given(st.integers(0, HEAD + 3 * CHUNK))
@lenient
def test_a_record_cut_anywhere_goes_on_with_its_whole_chunks(tmp_path: Path, size: int) -> None:
    path = tmp_path / "record"
    whole = written(path, 2, 0, 1)
    path.write_bytes(whole[:size])
    record = Record(path, ROWS)
    left = [2, 0, 1][: max(0, size - HEAD) // CHUNK]
    assert record.chunks == frozenset(left)
    for chunk in (2, 0, 1):
        record.add(chunk, losses(chunk), 1.5)
    record.close()
    assert path.read_bytes() == whole


@given(st.integers(HEAD, HEAD + 2 * CHUNK - 1), st.integers(1, 255))
@lenient
def test_a_byte_that_changed_in_the_middle_is_an_error_that_names_the_file(
    tmp_path: Path, at: int, change: int
) -> None:
    path = tmp_path / "record"
    data = bytearray(written(path, 0, 1, 2))
    data[at] ^= change
    path.write_bytes(data)
    with pytest.raises(RecordInvalid, match="record"):
        Record(path, ROWS)


@given(st.integers(HEAD + 2 * CHUNK, HEAD + 3 * CHUNK - 1), st.integers(1, 255))
@lenient
def test_a_last_chunk_that_is_not_what_was_written_is_measured_again(
    tmp_path: Path, at: int, change: int
) -> None:
    path = tmp_path / "record"
    data = bytearray(written(path, 0, 1, 2))
    data[at] ^= change
    path.write_bytes(data)
    record = Record(path, ROWS)
    assert record.chunks == {0, 1}
    record.close()


def test_losses_come_in_the_order_of_chunks_whatever_order_they_were_added_in(
    tmp_path: Path,
) -> None:
    written(tmp_path / "record", 2, 0, 1)
    record = Record(tmp_path / "record", ROWS)
    scores = record.scores()
    record.close()
    assert scores is not None
    assert scores.kld[:, 0].tolist() == [0, 1, 2]


def test_a_record_of_another_shape_is_not_touched(tmp_path: Path) -> None:
    data = written(tmp_path / "record", 0)
    with pytest.raises(RecordInvalid, match="no record of this measurement"):
        Record(tmp_path / "record", ROWS + 1)
    assert (tmp_path / "record").read_bytes() == data
