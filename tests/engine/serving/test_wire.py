import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.core.chat import (
    ChatEvent,
    ChatFinished,
    ChatRequest,
    Grammar,
    JsonSchema,
    MalformedCall,
    Message,
    ReasoningDelta,
    Sampling,
    TextDelta,
    Timings,
    Tool,
    ToolCall,
    ToolCalled,
    Usage,
)
from veriloop_tui.engine.serving.wire_answer import ChatAnswer, TextAnswer, error_answer
from veriloop_tui.engine.serving.wire_chat import ChatBody
from veriloop_tui.engine.serving.wire_fields import parse
from veriloop_tui.engine.serving.wire_text import DetokeniseBody, TextBody, TokeniseBody
from veriloop_tui.errors import ContextTooLong, EngineRefused

HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
HEAD = {"id": "x", "created": 1, "model": "m"}


def chat(**fields: Any) -> ChatRequest:
    return parse(ChatBody, json.dumps({**HELLO, **fields}).encode()).core()


def messages(*given: dict[str, Any]) -> tuple[Message, ...]:
    return chat(messages=list(given)).messages


def test_a_minimal_request_gets_the_default_sampler_settings() -> None:
    request = chat()

    assert request.messages == (Message("user", "Hello"),)
    assert request.sampling == Sampling()
    assert (request.stop, request.n, request.tools, request.structure) == ((), 1, (), None)


def test_extension_fields_are_understood() -> None:
    request = chat(
        top_k=5, min_p=0.1, repeat_penalty=1.1, seed=9, stop="END", continue_final_message=True
    )

    assert request.sampling == Sampling(top_k=5, min_p=0.1, repeat_penalty=1.1)
    assert (request.seed, request.stop, request.continue_final_message) == (9, ("END",), True)
    assert chat(repetition_penalty=1.2).sampling.repeat_penalty == 1.2


def test_content_in_parts_is_joined() -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]

    assert messages({"role": "user", "content": parts}) == (Message("user", "Hello"),)


def test_a_developer_speaks_as_the_system() -> None:
    assert messages({"role": "developer", "content": "x"}) == (Message("system", "x"),)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thinking_and_calls_of_earlier_answers_are_understood(name: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}

    assert messages(
        {"role": "assistant", "content": None, name: "hm", "tool_calls": [call]},
        {"role": "tool", "content": "seen", "tool_call_id": "c1"},
    ) == (
        Message("assistant", "", "hm", (ToolCall("c1", "look", '{"a":1}'),)),
        Message("tool", "seen", tool_call_id="c1"),
    )


def test_tools_are_understood() -> None:
    plain = {"type": "function", "function": {"name": "plain", "description": "d"}}

    assert chat(tools=[LOOK, plain]).tools == (
        Tool("look", "", '{"type": "object"}'),
        Tool("plain", "d", '{"type": "object", "properties": {}}'),
    )


def test_which_tool_must_be_called_is_understood() -> None:
    other = {"type": "function", "function": {"name": "other"}}
    named = {"type": "function", "function": {"name": "other"}}

    assert chat(tools=[LOOK, other], tool_choice="auto").must_call == ()
    assert chat(tools=[LOOK, other], tool_choice="required").must_call == ("look", "other")
    assert chat(tools=[LOOK, other], tool_choice=named).must_call == ("other",)
    assert chat(tools=[LOOK], tool_choice="none").tools == ()


@pytest.mark.parametrize(
    ("fields", "schema"),
    [
        ({"response_format": {"type": "json_object"}}, {"type": "object"}),
        ({"response_format": {"type": "json_object", "schema": {"const": 1}}}, {"const": 1}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"const": 1}}}},
            {"const": 1},
        ),
        ({"response_format": {"type": "json_schema", "schema": {"const": 1}}}, {"const": 1}),
        ({"json_schema": {"const": 1}}, {"const": 1}),
    ],
)
def test_a_schema_is_understood_wherever_clients_put_it(
    fields: dict[str, Any], schema: object
) -> None:
    structure = chat(**fields).structure

    assert isinstance(structure, JsonSchema)
    assert json.loads(structure.schema) == schema


def test_text_and_grammars_are_understood() -> None:
    assert chat(response_format={"type": "text"}).structure is None
    assert chat(grammar="root ::= [a]").structure == Grammar("root ::= [a]")


def test_the_budget_of_thinking_is_understood() -> None:
    assert chat().thinking_tokens is None
    assert chat(thinking_budget_tokens=-1).thinking_tokens is None
    assert chat(thinking_budget_tokens=0).thinking_tokens == 0
    assert chat(reasoning_budget_tokens=5).thinking_tokens == 5


def test_values_for_the_template_are_understood() -> None:
    values = {"enable_thinking": False, "level": 3, "name": "x", "none": None}

    assert dict(chat(chat_template_kwargs=values).template_values) == values


def test_fields_that_nobody_here_knows_or_that_say_nothing_are_ignored() -> None:
    fields = {"user": "me", "metadata": {"a": 1}, "logprobs": False, "presence_penalty": 0.0}

    assert chat(**fields, logit_bias={}, functions=None).messages == (Message("user", "Hello"),)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user"}]}, "'content' is missing"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "type 'text'"),
        ({"messages": "hello"}, "messages"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 1 << 70}, "seed"),
        ({"stop": [""]}, "stop"),
        ({"repeat_penalty": 0}, "repeat_penalty"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"functions": [{}]}, "functions"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"tools": [LOOK, LOOK]}, "same name"),
        ({"tools": [{"type": "function", "function": {"name": "a>b"}}]}, "tools.0.function.name"),
        ({"tool_choice": "required"}, "'tool_choice'"),
        ({"tool_choice": {"type": "function", "function": {"name": "no"}}}, "'tool_choice'"),
        ({"tools": [LOOK], "parallel_tool_calls": False}, "'parallel_tool_calls'"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_object"}, "grammar": "x"}, "only one of"),
        ({"chat_template_kwargs": {"a": [1]}}, "chat_template_kwargs"),
        ({"thinking_budget_tokens": -2}, "thinking_budget_tokens"),
    ],
)
def test_a_wrong_value_is_refused_with_the_fields_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(EngineRefused) as caught:
        chat(**fields)

    assert caught.value.status == 400
    assert named in caught.value.message


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_with_400(body: bytes) -> None:
    for kind in (ChatBody, TextBody, TokeniseBody, DetokeniseBody):
        with pytest.raises(EngineRefused) as caught:
            parse(kind, body)

        assert caught.value.status == 400


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "json_schema": ' + b'{"a":' * 10_000,
    ],
)
def test_hostile_json_is_refused(body: bytes) -> None:
    with pytest.raises(EngineRefused):
        parse(ChatBody, body)


def text(**fields: Any) -> Any:
    return parse(TextBody, json.dumps({"prompt": "Hi", **fields}).encode()).core()


def test_a_text_or_its_tokens_are_completed() -> None:
    assert (text().prompt, text().max_tokens) == ("Hi", 16)
    assert text(prompt=["Hi"]).prompt == "Hi"
    assert text(prompt=[1, 2]).prompt == (1, 2)
    assert text(prompt=[[1, 2]]).prompt == (1, 2)
    assert text(max_tokens=5, n=3, stop=["x"], grammar="g").grammar == "g"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"prompt": ["a", "b"]}, "one prompt"),
        ({"prompt": [[1], [2]]}, "one prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [1 << 40]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"logprobs": 3}, "logprobs"),
        ({"best_of": 2}, "best_of"),
    ],
)
def test_what_a_text_completion_cannot_do_is_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(EngineRefused, match=named):
        text(**fields)


def test_tokenising_wants_a_text_or_messages() -> None:
    for body in ({}, {"content": "x", **HELLO}):
        with pytest.raises(EngineRefused, match="either"):
            parse(TokeniseBody, json.dumps(body).encode())


END = ChatFinished("tool_calls", Usage(10, 6, 4, 3, 2), Timings(2.0, 3.0))
EVENTS: tuple[ChatEvent, ...] = (
    ReasoningDelta("h"),
    ReasoningDelta("m"),
    TextDelta("Let me"),
    ToolCalled(ToolCall("c1", "look", "{}")),
    ToolCalled(ToolCall("c2", "look", '{"a":1}')),
    MalformedCall("<tool_call>", "it is not finished"),
    END,
)


def test_a_whole_answer_holds_thinking_calls_and_what_was_malformed() -> None:
    answer = ChatAnswer(HEAD, 1, False, len)
    for event in EVENTS:
        answer.take(event)

    body = answer.whole()

    assert body["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Let me",
                "reasoning_content": "hm",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "look", "arguments": "{}"},
                    },
                    {
                        "id": "c2",
                        "type": "function",
                        "function": {"name": "look", "arguments": '{"a":1}'},
                    },
                ],
                "malformed_tool_calls": [{"text": "<tool_call>", "problem": "it is not finished"}],
            },
            "finish_reason": "tool_calls",
        }
    ]
    assert body["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 6,
        "total_tokens": 16,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
        "veriloop": {
            "reused_tokens": 4,
            "evaluated_tokens": 6,
            "drafted_tokens": 3,
            "accepted_tokens": 2,
        },
    }
    assert (body["timings"]["draft_n"], body["timings"]["draft_n_accepted"]) == (3, 2)


def test_an_answer_of_calls_alone_has_no_content() -> None:
    answer = ChatAnswer(HEAD, 1, False, len)
    for event in (ToolCalled(ToolCall("c1", "look", "{}")), END):
        answer.take(event)

    assert answer.whole()["choices"][0]["message"]["content"] is None


def test_a_stream_numbers_the_calls_and_ends_with_the_usage() -> None:
    answer = ChatAnswer(HEAD, 1, True, len)
    chunks = [chunk for event in EVENTS for chunk in answer.take(event)]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]

    assert [one["tool_calls"][0]["index"] for one in deltas if "tool_calls" in one] == [0, 1]
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 6


def test_a_text_answer_has_text_alone() -> None:
    answer = TextAnswer(HEAD, 1, True)
    chunks = [chunk for event in (TextDelta("a"), END) for chunk in answer.take(event)]

    assert [one["text"] for chunk in chunks for one in chunk["choices"]] == ["a", ""]
    assert answer.whole()["choices"][0]["text"] == "a"
    assert answer.whole()["object"] == "text_completion"


def test_a_prompt_that_is_too_long_is_reported_with_both_numbers() -> None:
    status, body = error_answer(ContextTooLong(9000, 8192))

    assert status == 400
    assert body["error"]["type"] == "exceed_context_size_error"
    assert (body["error"]["n_prompt_tokens"], body["error"]["n_ctx"]) == (9000, 8192)
