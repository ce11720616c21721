from pathlib import Path

import numpy as np
import pytest

from quant.losses.logits_file import LogitsHeader, LogitsRows, check_header, read_header
from quant.losses.scoring import Packed, packed_width
from tests.quant.losses.rows import logits, pack
from veriloop_tui.errors import LogitsFileInvalid


def _tokens(vocabulary: int) -> np.ndarray:
    random = np.random.default_rng(vocabulary)
    return random.integers(0, vocabulary, (3, 8)).astype(np.int32)


def _write(path: Path, vocabulary: int) -> Packed:
    header = LogitsHeader(8, vocabulary, _tokens(vocabulary), 0)
    rows = np.stack([pack(logits(chunk, 3, vocabulary)) for chunk in range(3)])
    with LogitsRows(path, header, write=True) as file:
        # As several streams do it: not in order, and in pieces.
        for chunk in (2, 0, 1):
            file.put(chunk, 1, rows[chunk, 1:])
            file.put(chunk, 0, rows[chunk, :1])
            file.finish(chunk)
    return rows


@pytest.mark.parametrize("vocabulary", [10, 11])
def test_what_is_written_is_read_for_odd_and_even_vocabularies(
    tmp_path: Path, vocabulary: int
) -> None:
    rows = _write(tmp_path / "base", vocabulary)
    header = read_header(tmp_path / "base")
    check_header(tmp_path / "base", header, vocabulary, _tokens(vocabulary))
    assert header.whole == 3
    found = np.empty((3, packed_width(vocabulary)), np.uint16)
    with LogitsRows(tmp_path / "base", header, write=False) as file:
        for chunk in range(3):
            file.get(chunk, 0, found)
            assert np.array_equal(found, rows[chunk])


@pytest.mark.parametrize("missing", [1, 80, 96, 200])
def test_only_whole_chunks_of_a_cut_file_count(tmp_path: Path, missing: int) -> None:
    rows = _write(tmp_path / "base", 11)
    data = (tmp_path / "base").read_bytes()
    (tmp_path / "cut").write_bytes(data[:-missing])
    left = (rows.nbytes - missing) // rows[0].nbytes
    header = read_header(tmp_path / "cut")
    assert header.whole == left
    with LogitsRows(tmp_path / "cut", header, write=False) as file:
        target = np.empty((3, packed_width(11)), np.uint16)
        with pytest.raises(LogitsFileInvalid, match=f"chunk {left + 1} is not in it"):
            file.get(left, 0, target)


def test_another_context_vocabulary_or_text_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "base", 11)
    header, tokens = read_header(tmp_path / "base"), _tokens(11)
    with pytest.raises(LogitsFileInvalid, match="n_ctx 8, not 4"):
        check_header(tmp_path / "base", header, 11, tokens.reshape(6, 4))
    with pytest.raises(LogitsFileInvalid, match="vocabulary of 11, not 12"):
        check_header(tmp_path / "base", header, 12, tokens)
    tokens[1, 3] = 7 if tokens[1, 3] != 7 else 8
    with pytest.raises(LogitsFileInvalid, match="chunk 2 at position 3"):
        check_header(tmp_path / "base", header, 11, tokens)


@pytest.mark.parametrize("data", [b"", b"GGUF" * 10, b"_logits_" + b"\xff" * 12, b"_logits_" * 9])
def test_what_is_no_such_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "other").write_bytes(data)
    with pytest.raises(LogitsFileInvalid):
        read_header(tmp_path / "other")
