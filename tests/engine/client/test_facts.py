"""What servers tell of themselves, and when they want to be asked again."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.core.chat import ModelFacts
from veriloop_tui.engine.client.facts import listed, model_facts, refusal, retry_after
from veriloop_tui.errors import EngineError

LLAMA_SERVER = {
    "id": "models/some.gguf",
    "owned_by": "llamacpp",
    "meta": {
        "n_vocab": 49_152,
        "n_ctx": 2_048,
        "n_ctx_train": 8_192,
        "n_params": 134_515_008,
        "size": 96_576_768,
        "ftype": "Q4_1",
    },
}
VLLM = {"id": "veriloop-e2", "owned_by": "vllm", "root": "org/repo", "max_model_len": 131_072}
OURS = ModelFacts(
    name="Some Model",
    architecture="qwen35",
    path="/models/some.gguf",
    file_size=1_000,
    parameters=2_000,
    quant="Q6_K",
    bpw=4.0,
    n_ctx=4_096,
    file_digest="d",
    template_hash="t",
    notices=("The draft head is not used: why.",),
)


def facts(entry: dict[str, Any], where: str = "http://h:1", n_ctx: int = 0) -> ModelFacts:
    (name,) = listed({"data": [entry]}).models
    return model_facts(name, entry, where, n_ctx)


def test_llama_server_tells_size_parameters_type_and_context() -> None:
    known = facts(LLAMA_SERVER)
    assert listed({"data": [LLAMA_SERVER]}).kind == "llama.cpp"
    assert (known.name, known.path) == ("models/some.gguf", "http://h:1")
    assert (known.file_size, known.parameters) == (96_576_768, 134_515_008)
    assert (known.quant, known.n_ctx) == ("Q4_1", 2_048)
    assert known.bpw == pytest.approx(5.7437, abs=1e-4)


def test_an_older_llama_server_tells_its_context_elsewhere() -> None:
    assert facts({**LLAMA_SERVER, "meta": None}, n_ctx=512).n_ctx == 512


def test_vllm_tells_its_context_alone() -> None:
    known = facts(VLLM)
    assert listed({"data": [VLLM]}).kind == "vllm"
    assert (known.name, known.n_ctx, known.parameters) == ("veriloop-e2", 131_072, 0)


def test_our_own_engine_tells_all_and_its_file_where_it_is_our_child() -> None:
    entry = {"id": "some", "owned_by": "local", "meta": json.loads(json.dumps(asdict(OURS)))}
    assert listed({"data": [entry]}).kind == "veriloop"
    assert facts(entry, "") == OURS
    assert facts(entry).path == "http://h:1"


def test_every_model_of_a_list_has_its_name() -> None:
    assert tuple(listed({"data": [VLLM, LLAMA_SERVER]}).models) == (
        "veriloop-e2",
        "models/some.gguf",
    )


@pytest.mark.parametrize("answer", [{}, {"data": None}, {"data": [1, {}, {"id": 3}]}])
def test_a_list_that_is_none_is_empty(answer: dict[str, Any]) -> None:
    assert listed(answer).models == {}


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
NAMES = (*asdict(OURS), "id", "owned_by", "size", "n_params", "ftype", "max_model_len")


@given(st.dictionaries(st.sampled_from(NAMES), ANY), st.dictionaries(st.sampled_from(NAMES), ANY))
def test_any_facts_are_read_into_their_types(meta: dict[str, Any], entry: dict[str, Any]) -> None:
    known = model_facts("m", {**entry, "meta": {**asdict(OURS), **meta}}, "")
    for name, kind in (("name", str), ("quant", str), ("file_size", int), ("n_ctx", int)):
        assert isinstance(getattr(known, name), kind)
    assert known.bpw >= 0
    assert all(isinstance(one, str) for one in known.notices)
    assert len(known.name) <= 300


@given(st.integers(400, 599), st.binary(max_size=80))
def test_any_refusal_is_an_error_of_the_engine(status: int, content: bytes) -> None:
    assert isinstance(refusal(status, content), EngineError)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"7", 7.0),
        (b" 1.5 ", 1.5),
        (b"-3", 0.0),
        (b"inf", None),
        (b"nan", None),
        (b"soon", None),
        (b"Thu, 01 Jan 1970 00:02:00 GMT", 20.0),
        (b"Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        (b"\xff", None),
    ],
)
def test_a_pause_is_asked_for_in_seconds_or_as_a_date(value: bytes, seconds: float | None) -> None:
    assert retry_after([(b"X", b"1"), (b"Retry-After", value)], 100.0) == seconds


def test_without_the_header_no_pause_is_asked_for() -> None:
    assert retry_after([(b"Age", b"7")], 100.0) is None
