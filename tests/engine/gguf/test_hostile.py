"""Headers that lie, are damaged or are cut anywhere: facts or a clear error, in bounded memory."""

import io
import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scripted_gguf import write_random_gguf
from veriloop_tui.engine.fit.memory import Device
from veriloop_tui.engine.fit.plan import choose
from veriloop_tui.engine.gguf.facts import GGUFFacts, check_loadable, parse_facts
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import ModelFileInvalid

HOST = Device("CPU", "", "cpu", 1 << 34, 1 << 34)


def facts_of(data: bytes) -> GGUFFacts:
    return parse_facts(io.BytesIO(data), "model.gguf")


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
