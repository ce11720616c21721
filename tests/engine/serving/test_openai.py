"""The engine as the official client and plain HTTP see it.

The model is scripted: it recites the text that belongs to the last trigger in its prompt.
"""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletionChunk, ChatCompletionToolParam

from tests.scripted_gguf import write_scripted_gguf
from veriloop_tui.core.chat import ChatRequest, MalformedCall, Message, Sampling, Tool
from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.settings import LoadSettings

TEMPLATE = (
    "{% if tools %}[tools]{{ tools | tojson }}<tool_call><function=name>{% endif %}"
    "{% for m in messages %}[{{ m.role }}]"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}"
    "{% for call in m.tool_calls %}"
    "({{ call.function.name }} {{ call.function.arguments.city }}){% endfor %}"
    "{% endfor %}[assistant]{% if enable_thinking %}<think>\n{% endif %}"
)
HERMES = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>'
XML = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n"
    "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>"
)
BROKEN = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome",}}\n</tool_call>'
SCRIPTS = {
    "TASK-HERMES": f"Let me look.\n{HERMES}\n{HERMES}",
    "TASK-XML": f"<think>\nIt wants Rome.\n{HERMES}\n</think>\n\n{XML}",
    "TASK-BROKEN": f"{BROKEN}\nSorry.",
    "TASK-THINK": "One, two, three, four.\n</think>\n\nFour.",
    "TASK-JSON": '{"city": "Rome"}',
    "TASK-SUN": "Sunny.",
}
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
ARGUMENTS = {"city": "Rome", "days": 2}


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    path = tmp_path_factory.mktemp("scripted") / "scripted.gguf"
    write_scripted_gguf(path, SCRIPTS, "Hello!", template=TEMPLATE)
    with EngineProcess(LoadSettings(path, n_ctx=2048, threads=1)) as process:
        yield process


@pytest.fixture
def client(scripted: EngineProcess) -> Iterator[openai.OpenAI]:
    transport = httpx2.HTTPTransport(uds=str(scripted.socket_path))
    with httpx2.Client(transport=transport) as http:
        yield openai.OpenAI(
            api_key="unused", base_url="http://engine/v1", http_client=http, max_retries=0
        )


@pytest.fixture
def http(scripted: EngineProcess) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(uds=str(scripted.socket_path))
    with httpx.Client(transport=transport, base_url="http://engine", timeout=120) as client:
        yield client


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def ask(client: openai.OpenAI, text: str, **fields: Any) -> Any:
    return client.chat.completions.create(model="any", messages=[user(text)], **fields)


def stream(client: openai.OpenAI, text: str, **fields: Any) -> list[ChatCompletionChunk]:
    return list(ask(client, text, stream=True, **fields))


def test_the_models_are_listed_and_found_by_name(client: openai.OpenAI) -> None:
    (model,) = client.models.list()

    assert client.models.retrieve(model.id).id == model.id
    with pytest.raises(openai.NotFoundError, match=model.id):
        client.models.retrieve("another")


def test_calls_in_both_forms_go_round(client: openai.OpenAI) -> None:
    for task in ("TASK-HERMES", "TASK-XML"):
        asked = ask(client, task, tools=[WEATHER])
        (choice,) = asked.choices

        assert choice.finish_reason == "tool_calls"
        assert [call.function.name for call in choice.message.tool_calls] == ["weather"] * 2
        assert [json.loads(call.function.arguments) for call in choice.message.tool_calls] == [
            ARGUMENTS,
            ARGUMENTS,
        ]
        call = choice.message.tool_calls[0]
        answered = client.chat.completions.create(
            model="any",
            messages=[
                user(task),
                choice.message.to_dict(),
                {"role": "tool", "tool_call_id": call.id, "content": "TASK-SUN"},
            ],
            tools=[WEATHER],
        )
        assert answered.choices[0].message.content == "Sunny."


def test_what_stands_around_the_calls_is_kept(client: openai.OpenAI) -> None:
    hermes = ask(client, "TASK-HERMES", tools=[WEATHER]).choices[0].message
    xml = ask(client, "TASK-XML", tools=[WEATHER]).choices[0].message

    assert hermes.content == "Let me look."
    assert (xml.content, xml.reasoning_content) == (None, "It wants Rome.")


def test_calls_are_streamed_by_number(client: openai.OpenAI) -> None:
    deltas = [chunk.choices[0].delta for chunk in stream(client, "TASK-HERMES", tools=[WEATHER])]
    calls = [call for delta in deltas for call in delta.tool_calls or ()]

    assert "".join(delta.content or "" for delta in deltas) == "Let me look."
    assert [call.index for call in calls] == [0, 1]
    assert len({call.id for call in calls}) == 2
    assert [call.function and json.loads(call.function.arguments or "") for call in calls] == [
        ARGUMENTS,
        ARGUMENTS,
    ]


def test_without_tools_the_same_text_is_content(client: openai.OpenAI) -> None:
    for fields in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
        choice = ask(client, "TASK-HERMES", **fields).choices[0]

        assert choice.message.content == SCRIPTS["TASK-HERMES"]
        assert choice.message.tool_calls is None
        assert choice.finish_reason == "stop"


def test_a_malformed_call_is_reported_and_its_text_stays(
    client: openai.OpenAI, scripted: EngineProcess
) -> None:
    message = ask(client, "TASK-BROKEN", tools=[WEATHER]).choices[0].message

    assert message.content == SCRIPTS["TASK-BROKEN"]
    assert message.malformed_tool_calls[0]["text"] == BROKEN
    assert "not valid JSON" in message.malformed_tool_calls[0]["problem"]

    tool = Tool("weather", "", json.dumps(WEATHER["function"]["parameters"]))
    request = ChatRequest(
        (Message("user", "TASK-BROKEN"),), Sampling(temperature=0), 1, 500, tools=(tool,)
    )
    events = scripted.client().complete(request, Never())
    assert [event.text for event in events if isinstance(event, MalformedCall)] == [BROKEN]


class Never:
    """Nobody asks for an end."""

    def is_set(self) -> bool:
        return False


def test_a_tool_that_must_be_called_is_called(client: openai.OpenAI) -> None:
    named = {"type": "function", "function": {"name": "weather"}}
    for choice in ("required", named):
        answer = ask(client, "TASK-XML", tools=[WEATHER], tool_choice=choice, max_tokens=400)

        assert answer.choices[0].message.tool_calls[0].function.name == "weather"


def test_thinking_is_told_apart_and_counted(client: openai.OpenAI) -> None:
    opened = {"chat_template_kwargs": {"enable_thinking": True}}
    answer = ask(client, "TASK-THINK", extra_body=opened)

    assert answer.choices[0].message.reasoning_content == "One, two, three, four."
    assert answer.choices[0].message.content == "Four."
    # The scripted vocabulary has a token for each byte of a prompt.
    assert answer.usage.completion_tokens_details.reasoning_tokens == 22

    deltas = [chunk.choices[0].delta for chunk in stream(client, "TASK-THINK", extra_body=opened)]
    assert "".join(delta.content or "" for delta in deltas) == "Four."
    thought = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    assert thought == "One, two, three, four."


def test_thinking_over_its_budget_is_ended_and_an_answer_follows(client: openai.OpenAI) -> None:
    fields = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_budget_tokens": 3}
    message = ask(client, "TASK-THINK", extra_body=fields).choices[0].message

    # Three tokens, then the marker; whatever it has read, a scripted model begins anew.
    assert SCRIPTS["TASK-THINK"].startswith(message.reasoning_content)
    assert 0 < len(message.reasoning_content) <= 12
    assert message.content == SCRIPTS["TASK-THINK"]


def test_several_candidates_come_by_index(client: openai.OpenAI) -> None:
    answer = ask(client, "TASK-SUN", n=3)
    chunks = stream(client, "TASK-SUN", n=3, stream_options={"include_usage": True})

    assert [(one.index, one.message.content) for one in answer.choices] == [
        (0, "Sunny."),
        (1, "Sunny."),
        (2, "Sunny."),
    ]
    for index in range(3):
        mine = [one for chunk in chunks for one in chunk.choices if one.index == index]
        assert "".join(one.delta.content or "" for one in mine) == "Sunny."
        assert [one.finish_reason for one in mine if one.finish_reason] == ["stop"]
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens == answer.usage.completion_tokens


def test_a_schema_is_held(client: openai.OpenAI) -> None:
    schema = {"properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}

    assert ask(client, "TASK-JSON", response_format=form).choices[0].message.content == (
        '{"city": "Rome"}'
    )
    forced = ask(client, "TASK-SUN", response_format=form, max_tokens=100).choices[0]
    assert json.loads(forced.message.content)["city"] in ("Rome", "Oslo")


def test_a_grammar_is_held_and_a_bad_one_refused_even_in_a_stream(client: openai.OpenAI) -> None:
    held = ask(client, "Hi", extra_body={"grammar": 'root ::= "yes" | "no"'})

    assert held.choices[0].message.content in ("yes", "no")
    for grammar in ('root ::= "a', 'root ::= "a"{5,2}', 'root ::= "\\q"'):
        for streamed in (False, True):
            with pytest.raises(openai.BadRequestError, match="grammar"):
                ask(client, "Hi", extra_body={"grammar": grammar}, stream=streamed)


def test_a_schema_that_cannot_be_held_is_refused_by_name(client: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {"const": 1}}}}

    with pytest.raises(openai.BadRequestError, match="'not' is not supported"):
        ask(client, "Hi", response_format=form)


def test_a_text_is_completed_without_the_template(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="any", prompt="TASK-SUN", n=2)
    pieces = client.completions.create(
        model="any", prompt="TASK-SUN", stream=True, stream_options={"include_usage": True}
    )
    received = list(pieces)

    assert [(one.index, one.text, one.finish_reason) for one in whole.choices] == [
        (0, "Sunny.", "stop"),
        (1, "Sunny.", "stop"),
    ]
    assert "".join(one.text for chunk in received for one in chunk.choices) == "Sunny."
    assert received[-1].usage is not None
    assert received[-1].usage.prompt_tokens == 1


def test_tokens_are_completed_like_their_text(client: openai.OpenAI, http: httpx.Client) -> None:
    tokens = http.post("/tokenize", json={"content": "Say TASK-SUN"}).json()["tokens"]

    answer = client.completions.create(model="any", prompt=tokens)

    assert answer.choices[0].text == "Sunny."
    # What was said of these tokens must not be taken for the beginning of another prompt.
    other = client.completions.create(model="any", prompt="TASK-JSON")
    assert other.choices[0].text == SCRIPTS["TASK-JSON"]
    assert other.usage is not None
    assert other.usage.prompt_tokens == 1
    with pytest.raises(openai.BadRequestError, match="the model has the tokens"):
        client.completions.create(model="any", prompt=[1 << 30])


def test_a_prompt_that_is_too_long_is_refused_with_both_numbers(client: openai.OpenAI) -> None:
    for call in (
        lambda: ask(client, "x" * 2048, stream=True),
        lambda: client.completions.create(model="any", prompt="x" * 2048),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            call()

        assert caught.value.type == "exceed_context_size_error"
        error = caught.value.response.json()["error"]
        assert error["n_prompt_tokens"] >= error["n_ctx"] == 2048


def test_texts_and_messages_are_tokenised_and_written_out_again(http: httpx.Client) -> None:
    text = "Grüße, TASK-SUN\n"
    answer = http.post("/tokenize", json={"content": text, "with_pieces": True}).json()
    rendered = http.post("/tokenize", json={"messages": [user("Hi")]}).json()

    assert answer["count"] == len(answer["tokens"]) == len(text.encode()) - 7
    assert answer["n_ctx"] == 2048
    assert {"id": 71, "piece": "G"} in answer["tokens"]
    assert [0xC3] in [token["piece"] for token in answer["tokens"]]
    ids = [token["id"] for token in answer["tokens"]]
    assert http.post("/detokenize", json={"tokens": ids}).json() == {"content": text}
    assert http.post("/detokenize", json={"tokens": rendered["tokens"]}).json() == {
        "content": "[user]Hi[assistant]"
    }
    assert http.post("/detokenize", json={"tokens": [1 << 30]}).status_code == 400


def test_the_counted_tokens_of_messages_are_those_of_the_completion(
    client: openai.OpenAI, http: httpx.Client
) -> None:
    body = {"messages": [user("Hi")], "tools": [WEATHER]}
    counted = http.post("/tokenize", json=body).json()["count"]

    assert ask(client, "Hi", tools=[WEATHER]).usage.prompt_tokens == counted


def test_metrics_count_what_was_done(client: openai.OpenAI, http: httpx.Client) -> None:
    def values() -> dict[str, float]:
        answer = http.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    before = values()
    usage = ask(client, "TASK-SUN").usage
    http.get("/nowhere/%22%0A")
    after = values()

    def step(name: str) -> float:
        return after[f"veriloop_{name}"] - before.get(f"veriloop_{name}", 0)

    assert step("prompt_tokens_total") == usage.prompt_tokens
    assert step("completion_tokens_total") == usage.completion_tokens
    assert step("reused_tokens_total") == usage.prompt_tokens_details.cached_tokens
    assert step('requests_total{path="/v1/chat/completions",status="200"}') == 1
    assert step('requests_total{path="other",status="404"}') == 1
    assert step('seconds_total{phase="generation"}') > 0
    assert after["veriloop_unfinished_requests"] == 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("GET", "/v1/chat/completions", 405), ("POST", "/metrics", 405)],
)
def test_other_paths_and_methods_are_refused_in_the_protocols_form(
    http: httpx.Client, method: str, path: str, status: int
) -> None:
    answer = http.request(method, path)

    assert answer.status_code == status
    assert path in answer.json()["error"]["message"]


def test_what_is_not_supported_is_refused_by_name(client: openai.OpenAI) -> None:
    for fields in ({"logprobs": True}, {"logit_bias": {"5": 1}}, {"presence_penalty": 1.0}):
        with pytest.raises(openai.BadRequestError, match=next(iter(fields))):
            ask(client, "Hi", **fields)
