import io
import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scripted_gguf import write_random_gguf
from veriloop_tui.engine.fit import choose
from veriloop_tui.engine.fit_memory import Device
from veriloop_tui.engine.gguf_facts import (
    GGUFFacts,
    check_loadable,
    file_digest,
    parse_facts,
    read_facts,
)
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import ModelFileInvalid, ModelNotFound

HOST = Device("CPU", "", "cpu", 1 << 34, 1 << 34)


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


@pytest.mark.parametrize("count", [1 << 63, 1 << 40, (1 << 64) - 1])
def test_hostile_counts_cost_no_memory(count: int) -> None:
    huge = struct.pack("<Q", count)
    key = struct.pack("<Q", 1) + b"k"
    array_of_texts = key + struct.pack("<II", 9, 8) + huge
    hostile = [
        b"GGUF" + struct.pack("<I", 3) + huge + struct.pack("<Q", 0),
        b"GGUF" + struct.pack("<I", 3) + struct.pack("<Q", 0) + huge,
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + huge + b"k",
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + array_of_texts,
    ]
    tracemalloc.start()
    for data in hostile:
        with pytest.raises(ModelFileInvalid):
            facts_of(data + b"\x00" * 64)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 1 << 20


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = write_random_gguf(tmp_path_factory.mktemp("fuzz") / "m.gguf", "llama", 1, blocks=1)
    return path.read_bytes()


@settings(max_examples=300, deadline=None)
@given(
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=8),
    cut=st.floats(0, 1),
)
def test_mutated_bytes_are_facts_or_a_clear_error(
    valid: bytes, changes: list[tuple[float, int]], cut: float
) -> None:
    header = facts_of(valid).header_size
    data = bytearray(valid)
    for where, byte in changes:
        data[int(where * header)] = byte

    for variant in (bytes(data), bytes(data[: int(cut * len(data))])):
        with suppress(ModelFileInvalid):
            check_loadable(facts_of(variant))


def text_of(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


COUNTS = st.sampled_from([0, 1, 3, 300, 70_000, 1 << 31, 1 << 40, (1 << 64) - 1])
KEYS = st.sampled_from(
    [
        b"general.architecture",
        b"general.alignment",
        b"general.name",
        b"tokenizer.ggml.tokens",
        b"tokenizer.chat_template",
        b"split.count",
        b"llama.block_count",
        b"llama.nextn_predict_layers",
        b"llama.embedding_length",
        b"llama.context_length",
        b"llama.attention.head_count",
        b"llama.attention.head_count_kv",
        b"llama.attention.key_length",
        b"llama.attention.sliding_window_pattern",
        b"llama.expert_count",
        b"llama.ssm.state_size",
    ]
)


@st.composite
def entries(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A key and its metadata entry: mostly of the right type, else a lie of some kind."""
    key, kind = draw(KEYS), draw(st.integers(0, 14))
    if draw(st.integers(0, 7)):
        kind = 8 if key.endswith((b"architecture", b"name", b"template")) else 4
    head = text_of(key) + struct.pack("<I", kind)
    if kind == 8:
        texts = st.sampled_from([b"llama", b"\x1b[2J", b"\xff" * 9, b""])
        return key, head + text_of(draw(texts))
    if kind == 9:
        item, count = draw(st.integers(0, 14)), draw(COUNTS)
        return key, head + struct.pack("<IQ", item, count) + draw(st.binary(max_size=64))
    number = draw(st.integers(0, 600) | st.integers(0, (1 << 64) - 1))
    return key, head + struct.pack("<Q", number)[: {0: 1, 1: 1, 7: 1, 2: 2, 3: 2}.get(kind, 4)]


@settings(max_examples=300, deadline=None)
@given(
    made=st.lists(entries(), max_size=12, unique_by=lambda entry: entry[0]),
    tensors=st.integers(0, 3) | COUNTS,
    dims=st.lists(st.integers(1, 64), min_size=1, max_size=3) | st.lists(COUNTS, max_size=5),
    kind=st.sampled_from([0, 1, 8]) | st.integers(0, 45),
    lie=st.none() | st.none() | COUNTS,
)
def test_headers_that_lie_are_facts_that_can_be_planned_with_or_a_clear_error(
    made: list[tuple[bytes, bytes]], tensors: int, dims: list[int], kind: int, lie: int | None
) -> None:
    count = len(made) if lie is None else lie
    data = b"GGUF" + struct.pack("<IQQ", 3, tensors, count)
    data += b"".join(entry for _, entry in made)
    for number in range(min(tensors, 3)):
        data += text_of(b"blk.%d.attn_k.weight" % number) + struct.pack("<I", len(dims))
        data += struct.pack(f"<{len(dims)}QIQ", *dims, kind, 0)
    tracemalloc.start()
    with suppress(ModelFileInvalid):
        facts = facts_of(data + bytes(64))
        choose(facts, None, [HOST], LoadSettings(Path()))
        check_loadable(facts)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_header_s_texts_are_bounded_together() -> None:
    entry = struct.pack("<I", 8) + text_of(b"x" * (4 << 20))
    made = b"".join(text_of(b"k%d" % number) + entry for number in range(20))

    with pytest.raises(ModelFileInvalid, match="MiB of metadata"):
        facts_of(b"GGUF" + struct.pack("<IQQ", 3, 0, 20) + made)


def test_arrays_in_arrays_are_refused() -> None:
    nested = text_of(b"k") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 9, 1) * 100

    with pytest.raises(ModelFileInvalid, match="array of the type 9"):
        facts_of(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + nested)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 255, 256, 4096, (1 << 20) - 9, 1 << 20, 3 << 20])
def test_texts_are_walked_over_wherever_a_block_of_the_file_ends(size: int) -> None:
    def array(key: bytes, texts: list[bytes]) -> bytes:
        return text_of(key) + struct.pack("<IIQ", 9, 8, len(texts)) + b"".join(map(text_of, texts))

    # Tokens may not be as long as other texts.
    tokens = [b"%d" % number for number in range(3000)] + [b"y" * min(size, 65_535), b"5"]
    made = array(b"merges", [b"x" * size, b"z"] * 3) + array(b"tokenizer.ggml.tokens", tokens)
    made += text_of(b"general.name") + struct.pack("<I", 8) + text_of(b"the end")

    facts = facts_of(b"GGUF" + struct.pack("<IQQ", 3, 0, 3) + made)

    assert facts.name == "the end"
    assert (facts.vocabulary_size, facts.duplicate_tokens) == (3002, 1)


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
