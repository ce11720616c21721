"""Another server is looked at before it is relied on: its model, the smoke test, what it takes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.dialects import LLAMA_SERVER, OTHER, VLLM, Dialect
from tests.engine.fake_server import Asked, FakeServer, reply, said, sends, serving
from veriloop_tui.core.chat import ChatRequest, Grammar, Message, Sampling, TextDelta
from veriloop_tui.engine.client.client import Endpoint
from veriloop_tui.engine.client.probe import Probe, ProbedModel, probe
from veriloop_tui.errors import Cancelled, ServerFailed, ServerLacks, UsageError

NEVER = threading.Event()


def look(server: FakeServer, model: str = "", key: str = "") -> Probe:
    return probe(Endpoint(base_url=server.url, api_key=key, model=model), NEVER)


def looked(dialect: Dialect, model: str = "") -> Probe:
    with serving(dialect) as server:
        return look(server, model)


def test_vllm_is_known_with_its_version_model_and_context() -> None:
    found = looked(Dialect((VLLM,)))
    assert found.version == "vLLM 0.17.0"
    assert (found.facts.name, found.facts.n_ctx) == ("veriloop-e2", 131_072)
    assert found.endpoint.model == "veriloop-e2"
    assert found.smoke.passed
    assert found.lacking() == ("a limit of its own for thinking",)


def test_llama_server_is_known_with_the_context_that_its_properties_tell() -> None:
    found = looked(Dialect((LLAMA_SERVER,)))
    assert found.version == "llama-server b9-abc"
    assert found.facts.n_ctx == 4_096
    assert found.lacking() == ()


def test_a_server_of_no_known_kind_is_used_for_what_it_is_seen_to_do() -> None:
    found = looked(Dialect((OTHER,)))
    assert found.lacking() == ("a limit of its own for thinking",)
    assert "context is not told" in found.sentences()[0]


FIELDS = {
    "seed": "the same answer for the same seed",
    "top_k": "top_k, min_p and a repeat penalty",
    "continue_final_message": "going on from a begun answer",
    "n": "several candidates at once",
    "response_format": "JSON schemas",
    "grammar": "grammars",
}


@pytest.mark.parametrize("kind", ["ignores", "refuses"])
@pytest.mark.parametrize(("field", "named"), FIELDS.items())
def test_what_a_server_ignores_or_refuses_is_found_out(kind: str, field: str, named: str) -> None:
    known = Dialect((LLAMA_SERVER,))
    unknown = frozenset({field})
    ignoring, refusing = replace(known, ignores=unknown), replace(known, refuses=unknown)
    assert looked(ignoring if kind == "ignores" else refusing).lacking() == (named,)


def test_a_server_that_refuses_all_that_is_not_plain_can_still_be_used() -> None:
    more = frozenset({*FIELDS, "min_p", "repeat_penalty", "chat_template_kwargs"})
    found = looked(replace(Dialect((OTHER,)), refuses=more, timings=False))
    assert found.smoke.passed
    assert set(found.lacking()) == {*FIELDS.values(), "a limit of its own for thinking", "timings"}


@pytest.mark.parametrize(
    "answer",
    [
        said("8001_OK"),
        said("\n\n8001_OK \n"),
        said("<think>\n\n</think>\n\n8001_OK"),
        said("hm, 8001?</think>8001_OK"),
        said("8001_OK", reasoning_content="The user wants 8001_OK."),
        said("8001_OK", reasoning="The user wants 8001_OK."),
    ],
)
def test_the_smoke_test_tolerates_thinking(answer: dict[str, Any]) -> None:
    assert looked(Dialect((VLLM,), answer)).smoke.passed


@pytest.mark.parametrize(
    "answer",
    [
        said("8001_OK."),
        said("8001 OK"),
        said("Sure! 8001_OK"),
        said(None),
        said("<think>8001_OK"),
        said(None, reasoning="8001_OK"),
    ],
)
def test_the_smoke_test_wants_exactly_what_was_asked_for(answer: dict[str, Any]) -> None:
    found = looked(Dialect((VLLM,), answer))
    assert not found.smoke.passed
    assert "Smoke test failed" in found.sentences()[1]


def test_the_smoke_test_asks_at_temperature_0() -> None:
    with serving(Dialect((VLLM,))) as server:
        look(server)
    first = server.chats[0].json
    assert (first["temperature"], first["model"]) == (0.0, "veriloop-e2")
    assert "8001_OK" in first["messages"][0]["content"]


def test_of_several_models_one_must_be_named() -> None:
    dialect = Dialect((VLLM, OTHER))
    with pytest.raises(UsageError, match=r"several models.*--server-model: veriloop-e2, thing"):
        looked(dialect)
    assert looked(dialect, "thing").facts.name == "thing"


def test_a_model_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"no model 'gpt'.*veriloop-e2"):
        looked(Dialect((VLLM,)), "gpt")


def test_a_wrong_key_is_told_with_the_variable_and_without_the_key() -> None:
    with (
        serving(Dialect((VLLM,), key="sesame")) as server,
        pytest.raises(ServerFailed, match="VERILOOP_SERVER_KEY") as caught,
    ):
        look(server, key="wrong-one")
    assert "wrong-one" not in str(caught.value)


def test_the_right_key_opens() -> None:
    with serving(Dialect((VLLM,), key="sesame")) as server:
        assert look(server, key="sesame").smoke.passed


@pytest.mark.parametrize(
    "answer",
    [
        reply(200, b"<html>"),
        reply(200, b"[]"),
        reply(200, {"data": []}),
        reply(200, {"data": [{"no": "id"}]}),
    ],
)
def test_a_list_that_is_none_is_told(answer: bytes) -> None:
    with serving(sends(answer)) as server, pytest.raises(ServerFailed, match=server.url):
        look(server)


def test_a_server_without_a_list_is_asked_for_the_named_model() -> None:
    with serving(Dialect(())) as server, pytest.raises(ServerFailed, match="empty"):
        look(server)

    inner = Dialect((OTHER,))

    def script(asked: Asked, connection: Any) -> None:
        if asked.path == "/v1/models":
            connection.sendall(reply(404, b"no"))
        else:
            inner(asked, connection)

    with serving(script) as server:
        assert look(server, "thing").facts.name == "thing"


def cancel_at(path: str) -> tuple[threading.Event, Callable[[Asked, Any], None]]:
    """A cancel that is set when that path has been asked for, which is never answered."""
    cancel, inner = threading.Event(), Dialect((VLLM,))

    def script(asked: Asked, connection: Any) -> None:
        if asked.path != path:
            inner(asked, connection)
            return
        cancel.set()
        connection.recv(1)

    return cancel, script


@pytest.mark.parametrize("path", ["/v1/models", "/version", "/v1/chat/completions"])
def test_a_probe_can_be_cancelled_at_any_place(path: str) -> None:
    cancel, script = cancel_at(path)
    with serving(script) as server, pytest.raises(Cancelled):
        probe(Endpoint(base_url=server.url), cancel)


def test_a_probed_model_tells_what_was_found_and_keeps_to_it() -> None:
    dialect = replace(Dialect((OTHER,)), refuses=frozenset({"grammar", "top_k"}))
    request = ChatRequest((Message("user", "hello"),), Sampling(), 7, 20)
    with serving(dialect) as server:
        model = ProbedModel(look(server))
        text = [e for e in model.complete(request, NEVER) if isinstance(e, TextDelta)]
        with pytest.raises(ServerLacks):
            list(model.complete(replace(request, structure=Grammar('root ::= "a"')), NEVER))
        body = server.chats[-1].json

    assert text
    assert (body["seed"], "top_k" in body) == (7, False)
    facts = model.facts()
    assert facts.path == server.url
    assert "grammars" in facts.notices[-1]
