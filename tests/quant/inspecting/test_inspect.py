from pathlib import Path

import pytest
from gguf import GGUFReader

from quant.inspecting.inspect import inspect
from quant.inspecting.read import read_model
from tests.quant.files import smollm_path, split, write_base, write_tensors
from veriloop_tui.errors import ModelFileInvalid, ModelNotFound

DENSE = {
    "token_embd.weight": (100, 32),
    "output.weight": (100, 32),
    "output_norm.weight": (32,),
    "blk.0.attn_q.weight": (32, 32),
    "blk.1.attn_q.weight": (32, 32),
}
COUNTS = {"block_count": 2}


def test_the_sizes_of_the_real_model_are_those_of_the_gguf_package() -> None:
    path = smollm_path()
    tensors = GGUFReader(path).tensors
    size, elements = sum(int(t.n_bytes) for t in tensors), sum(int(t.n_elements) for t in tensors)

    model = read_model(path)
    found = inspect(model)

    assert (found.file_size, found.sizes.elements) == (path.stat().st_size, elements)
    assert found.sizes.bpw == found.bpw_trunk == 8 * size / elements
    assert [(t.name, t.size) for t in model.tensors] == [(t.name, int(t.n_bytes)) for t in tensors]
    assert [list(t.shape) for t in model.tensors] == [list(map(int, t.shape)) for t in tensors]
    assert (found.stated, found.architecture) == ("Q4_1", "llama")


def test_a_draft_head_is_no_part_of_the_trunk(tmp_path: Path) -> None:
    head = DENSE | {"blk.2.nextn.eh_proj.weight": (32, 64)}
    counts = {"block_count": 3, "nextn_predict_layers": 1}
    base = read_model(write_tensors(tmp_path / "base.gguf", DENSE, counts=COUNTS))
    with_head = read_model(write_tensors(tmp_path / "head.gguf", head, counts=counts))
    assert inspect(with_head, base).bpw_trunk == 16.0
    assert inspect(base, with_head).bpw_trunk == 16.0
    assert inspect(with_head).sizes.draft_size == 2 * 32 * 64


def test_the_trunk_s_bpw_counts_the_base_s_weights(tmp_path: Path) -> None:
    base = read_model(write_tensors(tmp_path / "base.gguf", DENSE, counts=COUNTS))
    fewer = {name: shape for name, shape in DENSE.items() if name != "blk.1.attn_q.weight"}
    pruned = read_model(write_tensors(tmp_path / "pruned.gguf", fewer, counts=COUNTS))
    assert inspect(pruned).bpw_trunk == 16.0
    assert inspect(pruned, base).bpw_trunk < 16.0


def test_a_model_in_parts_is_read_whole_from_any_of_them(tmp_path: Path) -> None:
    whole = write_base(tmp_path)
    parts = split(whole, tmp_path / "m")

    for part in parts:
        found = read_model(part)
        assert found.name == "m"
        assert found.paths == tuple(parts)
        assert sorted(found.tensors, key=lambda t: t.name) == sorted(
            read_model(whole).tensors, key=lambda t: t.name
        )
        assert found.facts.file_size == sum(path.stat().st_size for path in parts)

    parts[0].unlink()
    with pytest.raises(ModelFileInvalid, match="part 1 of 2 is missing"):
        read_model(parts[1])


@pytest.mark.parametrize("name", ["m-00000-of-00002.gguf", "m-00003-of-00002.gguf"])
def test_a_part_with_an_impossible_number_is_refused(tmp_path: Path, name: str) -> None:
    path = write_tensors(tmp_path / name, DENSE)
    with pytest.raises(ModelFileInvalid, match="outside its own count"):
        read_model(path)


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = write_base(tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelFileInvalid, match="cut short"):
        read_model(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        read_model(tmp_path / "none.gguf")
