import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.core.chat import Message, Sampling
from veriloop_tui.engine.wire import error_answer, parse_body
from veriloop_tui.errors import ContextTooLong, EngineRefused

HELLO = {"messages": [{"role": "user", "content": "Hello"}]}


def parse(**fields: Any) -> Any:
    return parse_body(json.dumps({**HELLO, **fields}).encode()).core()


def test_a_minimal_request_gets_the_default_sampler_settings() -> None:
    request = parse()

    assert request.messages == (Message("user", "Hello"),)
    assert request.sampling == Sampling()
    assert request.stop == ()


def test_extension_fields_are_understood() -> None:
    request = parse(
        top_k=5, min_p=0.1, repeat_penalty=1.1, seed=9, stop="END", continue_final_message=True
    )

    assert request.sampling == Sampling(top_k=5, min_p=0.1, repeat_penalty=1.1)
    assert (request.seed, request.stop, request.continue_final_message) == (9, ("END",), True)


def test_content_in_parts_is_joined() -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]

    assert parse(messages=[{"role": "user", "content": parts}]).messages[0].content == "Hello"


def test_fields_that_nobody_here_knows_are_ignored() -> None:
    assert parse(user="me", metadata={"a": 1}).messages == (Message("user", "Hello"),)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "role"),
        ({"messages": "hello"}, "messages"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"seed": 1.5}, "seed"),
        ({"stop": [""]}, "stop"),
        ({"repeat_penalty": 0}, "repeat_penalty"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"n": 2}, "n"),
    ],
)
def test_a_wrong_value_is_refused_with_the_fields_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(EngineRefused) as caught:
        parse(**fields)

    assert caught.value.status == 400
    assert named in caught.value.message


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_with_400(body: bytes) -> None:
    with pytest.raises(EngineRefused) as caught:
        parse_body(body)

    assert caught.value.status == 400


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"messages": [{"role": "user", "content": "\\ud800"}]}']
)
def test_hostile_json_is_refused(body: bytes) -> None:
    with pytest.raises(EngineRefused):
        parse_body(body)


def test_a_prompt_that_is_too_long_is_reported_with_both_numbers() -> None:
    status, body = error_answer(ContextTooLong(9000, 8192))

    assert status == 400
    assert (body["error"]["n_prompt_tokens"], body["error"]["n_ctx"]) == (9000, 8192)
