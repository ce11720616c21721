"""What is asked, in each server's dialect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from veriloop_tui.core.chat import (
    ChatRequest,
    Grammar,
    JsonSchema,
    Message,
    Sampling,
    Tool,
    ToolCall,
)
from veriloop_tui.engine.client.body import OWN, Abilities, LackingError, ServerKind, body

PLAIN = ChatRequest((Message("user", "hello"),), Sampling(), 7, 20)
KINDS: tuple[ServerKind, ...] = ("veriloop", "llama.cpp", "vllm", "other")
NOTHING = Abilities(
    "other",
    seed=False,
    samplers=False,
    continues=False,
    candidates=False,
    schema=False,
    grammar=False,
    template_values=False,
)


def test_a_plain_request_holds_nothing_that_was_not_asked_for() -> None:
    assert body(PLAIN, "m", OWN) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 20,
        "seed": 7,
        "temperature": 0.8,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "repeat_penalty": 1.0,
    }


def test_a_server_that_takes_nothing_more_gets_the_plain_protocol() -> None:
    values = (("enable_thinking", False),)
    made = body(replace(PLAIN, template_values=values, thinking_tokens=5), "", NOTHING)
    assert set(made) == {
        "messages",
        "stream",
        "stream_options",
        "max_tokens",
        "temperature",
        "top_p",
    }


def test_vllm_has_its_own_words() -> None:
    request = replace(
        PLAIN,
        sampling=Sampling(repeat_penalty=1.1),
        structure=Grammar("root ::= x"),
        messages=(Message("user", "a"), Message("assistant", "b", reasoning="so")),
        thinking_tokens=5,
    )
    made = body(request, "m", Abilities("vllm"))
    assert made["repetition_penalty"] == 1.1
    assert made["structured_outputs"] == {"grammar": "root ::= x"}
    assert made["messages"][1]["reasoning"] == "so"
    assert not {"repeat_penalty", "grammar", "reasoning_budget_tokens"} & set(made)


def test_llama_servers_words_are_ours() -> None:
    request = replace(
        PLAIN,
        structure=Grammar("root ::= x"),
        messages=(Message("user", "a"), Message("assistant", "b", reasoning="so")),
        thinking_tokens=5,
    )
    for kind in ("llama.cpp", "veriloop"):
        made = body(request, "m", Abilities(kind))
        assert (made["grammar"], made["reasoning_budget_tokens"]) == ("root ::= x", 5)
        assert made["messages"][1]["reasoning_content"] == "so"


@pytest.mark.parametrize("kind", KINDS)
def test_the_rest_is_the_same_everywhere(kind: ServerKind) -> None:
    called = ToolCall("c1", "weather", '{"city": "Paris"}')
    request = replace(
        PLAIN,
        messages=(
            Message("user", "a"),
            Message("assistant", "", tool_calls=(called,)),
            Message("tool", "rain", tool_call_id="c1"),
            Message("assistant", "It "),
        ),
        stop=("END",),
        continue_final_message=True,
        n=3,
        structure=JsonSchema('{"type": "object"}'),
        tools=(Tool("weather", "", '{"type": "object"}'),),
        template_values=(("enable_thinking", False),),
        must_call=("weather",),
    )
    made = body(request, "m", Abilities(kind))
    assert (made["stop"], made["n"]) == (["END"], 3)
    assert (made["continue_final_message"], made["add_generation_prompt"]) == (True, False)
    assert made["response_format"]["json_schema"]["schema"] == {"type": "object"}
    function = {"name": "weather", "parameters": {"type": "object"}}
    assert made["tools"] == [{"type": "function", "function": function}]
    assert made["tool_choice"] == "required"
    assert made["chat_template_kwargs"] == {"enable_thinking": False}
    assert made["messages"][1]["tool_calls"] == [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
        }
    ]
    assert made["messages"][2] == {"role": "tool", "content": "rain", "tool_call_id": "c1"}


def test_one_of_several_tools_is_named_where_the_server_understands_that() -> None:
    tools = (Tool("a", "", "{}"), Tool("b", "", "{}"))
    request = replace(PLAIN, tools=tools, must_call=("b",))
    choice = {"type": "function", "function": {"name": "b"}}
    assert body(request, "m", Abilities("vllm"))["tool_choice"] == choice
    with pytest.raises(LackingError):
        body(request, "m", Abilities("llama.cpp"))


@pytest.mark.parametrize(
    "request_",
    [
        replace(PLAIN, continue_final_message=True),
        replace(PLAIN, n=2),
        replace(PLAIN, structure=Grammar("root ::= x")),
        replace(PLAIN, structure=JsonSchema("{}")),
    ],
)
def test_what_would_change_the_answer_is_refused_and_not_left_out(request_: ChatRequest) -> None:
    with pytest.raises(LackingError):
        body(request_, "m", NOTHING)
