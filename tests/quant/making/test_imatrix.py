import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.making.imatrix import read_imatrix
from tests.quant.files import legacy_imatrix, write_base, write_gguf_imatrix
from veriloop_tui.errors import ImatrixInvalid

ENTRIES = {
    "blk.0.attn_q.weight": np.arange(1, 9, dtype=np.float32),
    "blk.1.attn_q.weight": np.full(8, 0.25, np.float32),
}


def test_both_forms_hold_the_same_means(tmp_path: Path) -> None:
    old = tmp_path / "imatrix.dat"
    old.write_bytes(legacy_imatrix(ENTRIES, calls=4, chunks=17, dataset="words.txt"))
    new = write_gguf_imatrix(tmp_path / "imatrix.gguf", ENTRIES, [4.0], 17, "words.txt")

    for path in (old, new):
        found = read_imatrix(path)
        assert (found.chunks, found.datasets) == (17, ("words.txt",))
        assert found.weights.keys() == ENTRIES.keys()
        for name, means in ENTRIES.items():
            np.testing.assert_allclose(found.weights[name], means, rtol=1e-6)


def test_an_expert_that_no_token_reached_weighs_its_columns_equally(tmp_path: Path) -> None:
    means = {"blk.0.ffn_up_exps.weight": np.arange(8, dtype=np.float32)}
    path = write_gguf_imatrix(tmp_path / "experts.gguf", means, [2.0, 0.0], 1, "words.txt")

    found = read_imatrix(path).weights["blk.0.ffn_up_exps.weight"]

    assert found.tolist() == [0, 1, 2, 3, 1, 1, 1, 1]


def test_the_older_form_may_end_after_its_entries(tmp_path: Path) -> None:
    path = tmp_path / "old.dat"
    whole = legacy_imatrix(ENTRIES, calls=1, chunks=3, dataset="")
    path.write_bytes(whole[:-8])
    assert read_imatrix(path).chunks == 0


def test_a_model_is_not_an_importance_matrix(tmp_path: Path) -> None:
    with pytest.raises(ImatrixInvalid, match="no sums of activations"):
        read_imatrix(write_base(tmp_path))


def test_values_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "nan.dat"
    path.write_bytes(legacy_imatrix({"a": np.array([1, np.nan], np.float32)}, 1, 1, ""))
    with pytest.raises(ImatrixInvalid, match="not finite"):
        read_imatrix(path)


@pytest.mark.parametrize("count", [0, -1, 2**31 - 1])
def test_a_count_that_cannot_be_is_refused(tmp_path: Path, count: int) -> None:
    path = tmp_path / "bad.dat"
    path.write_bytes(struct.pack("<i", count) + b"\0" * 64)
    with pytest.raises(ImatrixInvalid):
        read_imatrix(path)


@settings(max_examples=150)
@given(st.data())
def test_a_damaged_file_is_refused_or_read_but_never_anything_else(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "imatrix"
    if data.draw(st.booleans()):
        write_gguf_imatrix(path, ENTRIES, [4.0], 17, "words.txt")
        whole = path.read_bytes()
    else:
        whole = legacy_imatrix(ENTRIES, calls=4, chunks=17, dataset="words.txt")
    at = data.draw(st.integers(0, len(whole) - 1))
    piece = data.draw(st.binary(max_size=8))
    path.write_bytes((whole[:at] + piece + whole[at + len(piece) :])[: data.draw(st.integers(0))])
    try:
        found = read_imatrix(path)
    except ImatrixInvalid:
        return
    assert all(np.isfinite(values).all() for values in found.weights.values())
