import io
import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from veriloop_tui.engine.gguf.facts import (
    GGUFFacts,
    check_loadable,
    file_digest,
    parse_facts,
    read_facts,
)
from veriloop_tui.errors import ModelFileInvalid, ModelNotFound


def facts_of(data: bytes) -> GGUFFacts:
    return parse_facts(io.BytesIO(data), "model.gguf")


def patched(data: bytes, key: str, value: int) -> bytes:
    """The same GGUF with another value for a u32 metadata entry."""
    at = data.index(key.encode()) + len(key)
    assert data[at : at + 4] == struct.pack("<I", 4)
    return data[: at + 4] + struct.pack("<I", value) + data[at + 8 :]


def header_only(path: Path, block: int, blocks: int, nextn: int) -> bytes:
    """A GGUF with one tensor, in block number `block`."""
    writer = GGUFWriter(path, "qwen35")
    writer.add_block_count(blocks)
    writer.add_head_count(4)
    writer.add_uint32("qwen35.nextn_predict_layers", nextn)
    writer.add_token_list(["a", "b"])
    writer.add_tensor(f"blk.{block}.attn_norm.weight", np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def problem_of(data: bytes) -> str:
    with pytest.raises(ModelFileInvalid) as caught:
        check_loadable(facts_of(data))
    return caught.value.problem


def test_the_facts_of_the_real_model_are_what_its_publisher_states(smollm: Path) -> None:
    facts = read_facts(smollm)

    assert facts.architecture == "llama"
    assert facts.parameters == 134_515_008
    assert facts.quant == "Q4_1"
    assert [(share.type_name, share.tensors) for share in facts.sizes.types] == [
        ("Q4_1", 210),
        ("Q8_0", 1),
        ("F32", 61),
    ]
    assert facts.context_length == 8192
    assert facts.block_count == 30
    assert (facts.heads, facts.kv_heads) == ((9,), (3,))
    assert facts.file_size == facts.parts[0].expected_size == smollm.stat().st_size
    assert facts.vocabulary_size == 49_152
    # llama.cpp prints 92.10 MiB (5.74 BPW) for it.
    assert facts.sizes.size / 2**20 == pytest.approx(92.10, abs=0.005)
    assert facts.bpw == pytest.approx(5.74, abs=0.005)
    assert "<|im_start|>" in facts.chat_template
    check_loadable(facts)


def test_tiny_models_of_both_kinds_are_loadable(tiny_llama: Path, tiny_qwen: Path) -> None:
    for path in (tiny_llama, tiny_qwen):
        check_loadable(read_facts(path))


def test_a_missing_file_is_reported_as_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        read_facts(tmp_path / "absent.gguf")


def test_a_folder_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFileInvalid):
        read_facts(tmp_path)


@pytest.mark.parametrize("data", [b"", b"GGUF", b"\x00" * 100, b"<!DOCTYPE html>" * 10])
def test_what_is_no_gguf_is_refused(data: bytes) -> None:
    with pytest.raises(ModelFileInvalid):
        facts_of(data)


def test_a_file_cut_short_in_its_weights_is_refused_with_both_sizes(tiny_llama: Path) -> None:
    data = tiny_llama.read_bytes()

    problem = problem_of(data[:-100])

    assert f"{len(data) - 100} of {len(data)} bytes" in problem


def test_a_file_cut_short_anywhere_in_its_header_is_refused(tiny_llama: Path) -> None:
    data = tiny_llama.read_bytes()
    for size in range(0, facts_of(data).header_size, 97):
        with pytest.raises(ModelFileInvalid):
            check_loadable(facts_of(data[:size]))


@pytest.mark.parametrize("blocks", [0, 513, 9999, 0xFFFFFFFF])
def test_an_absurd_number_of_blocks_is_refused(tiny_llama: Path, blocks: int) -> None:
    problem = problem_of(patched(tiny_llama.read_bytes(), "llama.block_count", blocks))

    assert f"{blocks} blocks" in problem


def test_heads_that_key_value_heads_cannot_share_are_refused(tiny_llama: Path) -> None:
    data = patched(tiny_llama.read_bytes(), "llama.attention.head_count_kv", 3)

    assert "4 attention heads cannot be shared by 3" in problem_of(data)


def test_a_vocabulary_that_repeats_a_text_is_refused(tiny_llama: Path) -> None:
    entry = struct.pack("<Q", 1)
    data = tiny_llama.read_bytes().replace(entry + b"A", entry + b"B", 1)

    assert "1 entries of its vocabulary" in problem_of(data)


def test_more_draft_layers_than_blocks_are_refused(tmp_path: Path) -> None:
    data = header_only(tmp_path / "m.gguf", block=0, blocks=4, nextn=5)

    assert "5 draft layers in 4 blocks" in problem_of(data)


def test_a_file_that_holds_only_a_draft_head_is_refused(tmp_path: Path) -> None:
    data = header_only(tmp_path / "m.gguf", block=4, blocks=5, nextn=1)

    assert "draft head only" in problem_of(data)


def test_a_model_with_its_draft_head_inside_is_accepted(tmp_path: Path) -> None:
    check_loadable(facts_of(header_only(tmp_path / "m.gguf", block=0, blocks=5, nextn=1)))


def test_an_epsilon_that_is_no_number_is_refused(tiny_llama: Path) -> None:
    key = b"llama.attention.layer_norm_rms_epsilon"
    data = tiny_llama.read_bytes()
    at = data.index(key) + len(key) + 4

    with pytest.raises(ModelFileInvalid, match="epsilon"):
        facts_of(data[:at] + struct.pack("<f", float("nan")) + data[at + 4 :])


def test_control_characters_of_a_name_do_not_reach_the_terminal(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_name("nice\x1b[2Jmodel")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()

    assert read_facts(tmp_path / "m.gguf").name == "nice[2Jmodel"


def test_the_digest_depends_on_header_size_and_ends_of_the_weights(
    tiny_llama: Path, tmp_path: Path
) -> None:
    data = tiny_llama.read_bytes()
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(data)
    original = file_digest(read_facts(tiny_llama))

    assert file_digest(read_facts(copy)) == original
    for at in (data.index(b"llama.context_length") + 24, len(data) - 1):
        copy.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert file_digest(read_facts(copy)) != original
