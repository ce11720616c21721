from pathlib import Path

import numpy as np
import pytest

from quant.logits_file import read_logits, write_logits
from quant.scoring import pack
from veriloop_tui.errors import UsageError


def _write(path: Path, vocabulary: int) -> np.ndarray:
    random = np.random.default_rng(vocabulary)
    tokens = random.integers(0, vocabulary, (3, 8)).astype(np.int32)
    rows = [pack(random.normal(0, 5, (3, vocabulary)).astype(np.float32)) for _ in range(3)]
    write_logits(path, vocabulary, tokens, rows)
    return np.stack(rows)


@pytest.mark.parametrize("vocabulary", [10, 11])
def test_what_is_written_is_read_for_odd_and_even_vocabularies(
    tmp_path: Path, vocabulary: int
) -> None:
    rows = _write(tmp_path / "base", vocabulary)
    found = read_logits(tmp_path / "base", 8, vocabulary)
    assert found.whole
    assert np.array_equal(found.rows, rows)


@pytest.mark.parametrize("missing", [1, 80, 96, 200])
def test_only_whole_chunks_of_a_cut_file_are_read(tmp_path: Path, missing: int) -> None:
    rows = _write(tmp_path / "base", 11)
    data = (tmp_path / "base").read_bytes()
    (tmp_path / "cut").write_bytes(data[:-missing])
    found = read_logits(tmp_path / "cut")
    left = (3 * rows[0].nbytes - missing) // rows[0].nbytes
    assert len(found.rows) == left
    assert np.array_equal(found.rows, rows[:left])
    assert not found.whole


def test_another_context_or_vocabulary_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "base", 11)
    with pytest.raises(UsageError, match="n_ctx 8, not 512"):
        read_logits(tmp_path / "base", 512)
    with pytest.raises(UsageError, match="vocabulary 11, not 12"):
        read_logits(tmp_path / "base", 8, 12)
    (tmp_path / "other").write_bytes(b"GGUF" * 10)
    with pytest.raises(UsageError, match="no file of base logits"):
        read_logits(tmp_path / "other")
