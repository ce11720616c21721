from pathlib import Path

import pytest
from gguf import GGUFReader

from quant.inspect import inspect, roles
from quant.inspect_read import read_model, shard_paths
from tests.quant.files import smollm_path, write_base, write_tensors
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

    assert (found.file_size, found.elements) == (path.stat().st_size, elements)
    assert found.bpw_all == found.bpw_trunk == 8 * size / elements
    assert [(t.name, t.size) for t in model.tensors] == [(t.name, int(t.n_bytes)) for t in tensors]
    assert {share.type_name for share in found.types} == {t.tensor_type.name for t in tensors}
    # Its embeddings are the output too, so every byte is read for each token.
    assert found.active_size == size


def test_the_body_is_all_but_embeddings_and_output(tmp_path: Path) -> None:
    path = write_tensors(tmp_path / "m.gguf", DENSE, counts=COUNTS)
    found = inspect(read_model(path))
    assert found.bpw_body == 16.0
    assert found.active_size == 2 * (32 + 100 * 32 + 32 + 2 * 32 * 32)


def test_the_bytes_of_an_embedding_that_stands_alone_count_by_the_row(tmp_path: Path) -> None:
    tied = {name: shape for name, shape in DENSE.items() if name != "output.weight"}
    whole = inspect(read_model(write_tensors(tmp_path / "tied.gguf", tied, counts=COUNTS)))
    assert whole.active_size == 2 * (100 * 32 + 32 + 2 * 32 * 32)


def test_of_experts_only_the_used_share_is_active(tmp_path: Path) -> None:
    experts = DENSE | {
        "blk.0.ffn_up_exps.weight": (8, 64, 32),
        "blk.0.ffn_up_shexp.weight": (64, 32),
        "blk.0.ffn_gate_inp.weight": (8, 32),
    }
    counts = COUNTS | {"expert_count": 8, "expert_used_count": 2}
    dense = inspect(read_model(write_tensors(tmp_path / "d.gguf", DENSE, counts=COUNTS)))
    sparse = inspect(read_model(write_tensors(tmp_path / "s.gguf", experts, counts=counts)))
    assert (sparse.experts_used, sparse.experts) == (2, 8)
    assert sparse.active_size - dense.active_size == 2 * (2 * 64 * 32 + 64 * 32 + 8 * 32)


def test_a_draft_head_is_counted_apart(tmp_path: Path) -> None:
    head = DENSE | {"blk.2.attn_q.weight": (32, 32), "blk.2.nextn.eh_proj.weight": (32, 64)}
    counts = {"block_count": 3, "nextn_predict_layers": 1}
    plain = inspect(read_model(write_tensors(tmp_path / "p.gguf", DENSE, counts=COUNTS)))
    model = read_model(write_tensors(tmp_path / "h.gguf", head, counts=counts))
    found = inspect(model)

    assert found.draft_head_size == 2 * (32 * 32 + 32 * 64)
    assert (found.active_size, found.bpw_body) == (plain.active_size, plain.bpw_body)
    assert [roles(model)(tensor).value for tensor in model.tensors[-2:]] == ["draft head"] * 2


def test_the_trunk_s_bpw_counts_the_base_s_weights(tmp_path: Path) -> None:
    base = read_model(write_tensors(tmp_path / "base.gguf", DENSE, counts=COUNTS))
    fewer = {name: shape for name, shape in DENSE.items() if name != "blk.1.attn_q.weight"}
    pruned = read_model(write_tensors(tmp_path / "pruned.gguf", fewer, counts=COUNTS))
    assert inspect(pruned).bpw_trunk == 16.0
    assert inspect(pruned, base).bpw_trunk < 16.0


def test_a_model_in_parts_is_read_whole_from_any_of_them(tmp_path: Path) -> None:
    names = list(DENSE)
    write_tensors(tmp_path / "m-00001-of-00002.gguf", {n: DENSE[n] for n in names[:2]}, "llama")
    second = tmp_path / "m-00002-of-00002.gguf"
    write_tensors(second, {n: DENSE[n] for n in names[2:]}, "")
    whole = read_model(write_tensors(tmp_path / "whole.gguf", DENSE))

    parts = read_model(second)

    assert parts.name == "m"
    assert parts.architecture == "llama"
    assert sorted(t.name for t in parts.tensors) == sorted(t.name for t in whole.tensors)
    assert parts.file_size == sum(path.stat().st_size for path in shard_paths(second))

    second.with_name("m-00001-of-00002.gguf").unlink()
    with pytest.raises(ModelFileInvalid, match="part 1 of 2 is missing"):
        read_model(second)


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
