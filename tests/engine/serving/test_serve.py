"""The engine's HTTP interface, with the real model, as other programs see it."""

import asyncio
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import httpx2
import openai
import pytest

from veriloop_tui.engine.client.client import Endpoint, EngineClient
from veriloop_tui.engine.model.worker import Worker
from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.serving.routes import application
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import EngineRefused

RAIN = [{"role": "user", "content": "Write a haiku about rain."}]
HAIKU = {
    "messages": RAIN,
    "temperature": 0,
    "max_tokens": 12,
}
COUNT = [{"role": "user", "content": "Count from 1 to 9, with spaces."}]


@pytest.fixture
def http(engine: EngineProcess) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(uds=str(engine.socket_path))
    with httpx.Client(transport=transport, base_url="http://engine", timeout=120) as client:
        yield client


def ask(http: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = http.post("/v1/chat/completions", json={**HAIKU, **fields})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def text_of(body: dict[str, Any]) -> str:
    text: str = body["choices"][0]["message"]["content"]
    return text


def chunks(http: httpx.Client, **fields: Any) -> list[dict[str, Any]]:
    with http.stream(
        "POST", "/v1/chat/completions", json={**HAIKU, "stream": True, **fields}
    ) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_the_socket_and_its_folder_belong_to_the_user_alone(engine: EngineProcess) -> None:
    assert stat.S_IMODE(engine.socket_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(engine.socket_path.parent.stat().st_mode) == 0o700


def test_health_is_ok_once_the_model_is_loaded(http: httpx.Client) -> None:
    assert http.get("/health").json() == {"status": "ok"}


def test_models_tells_the_facts_of_the_model(http: httpx.Client) -> None:
    (model,) = http.get("/v1/models").json()["data"]

    assert model["meta"]["parameters"] == 134_515_008
    assert model["meta"]["n_ctx"] == 4096


def test_an_answer_has_usage_and_timings_as_llama_server_gives_them(http: httpx.Client) -> None:
    body = ask(http)

    usage, timings = body["usage"], body["timings"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] == timings["predicted_n"] == 12
    assert timings["cache_n"] == usage["prompt_tokens_details"]["cached_tokens"]
    assert timings["cache_n"] + timings["prompt_n"] == usage["prompt_tokens"]
    assert timings["prompt_ms"] > 0
    assert timings["predicted_per_second"] > 0


def test_a_streamed_answer_is_the_same_text_and_ends_with_usage_and_timings(
    http: httpx.Client,
) -> None:
    whole = ask(http)
    streamed = chunks(http)

    deltas = [one["choices"][0]["delta"].get("content", "") for one in streamed]
    assert "".join(deltas) == text_of(whole)
    assert streamed[-1]["choices"][0]["finish_reason"] == "length"
    assert streamed[-1]["usage"]["completion_tokens"] == 12
    assert "predicted_ms" in streamed[-1]["timings"]


def test_the_second_time_the_prompt_comes_from_the_cache(http: httpx.Client) -> None:
    ask(http)
    usage = ask(http)["usage"]

    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1


def test_a_stop_string_ends_the_answer_and_is_not_part_of_it(http: httpx.Client) -> None:
    free = text_of(ask(http, messages=COUNT, max_tokens=30))
    stop = free[4:8]
    assert stop

    body = ask(http, messages=COUNT, max_tokens=30, stop=[stop])

    assert text_of(body) == free[: free.index(stop)]
    assert body["choices"][0]["finish_reason"] == "stop"


def test_a_final_assistant_message_is_continued(http: httpx.Client) -> None:
    free = text_of(ask(http, max_tokens=20))
    begun = [*RAIN, {"role": "assistant", "content": free[:10]}]

    body = ask(http, messages=begun, continue_final_message=True)

    assert body["usage"]["prompt_tokens"] < ask(http, messages=begun)["usage"]["prompt_tokens"]
    assert text_of(body)


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"{", 400), (b'{"messages": 5}', 400), (b"\xff\xfe", 400), (b"", 400)],
)
def test_a_bad_request_is_refused_clearly_and_harms_no_other(
    http: httpx.Client, content: bytes, status: int
) -> None:
    answer = http.post("/v1/chat/completions", content=content)

    assert answer.status_code == status
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert text_of(ask(http))


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(http: httpx.Client) -> None:
    long = [{"role": "user", "content": "word " * 6000}]

    for stream in (False, True):
        answer = http.post(
            "/v1/chat/completions", json={**HAIKU, "messages": long, "stream": stream}
        )
        assert answer.status_code == 400
        assert answer.json()["error"]["n_ctx"] == 4096
        assert answer.json()["error"]["n_prompt_tokens"] > 6000


def test_a_client_that_leaves_during_prefill_frees_the_engine_for_the_next(
    http: httpx.Client,
) -> None:
    long = [{"role": "user", "content": "rain and " * 500}]
    body = {**HAIKU, "messages": long, "stream": True, "max_tokens": 3000}
    with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        next(answer.iter_raw())

    # Had the first gone on to its end, its whole prompt would be in the cache now.
    usage = ask(http, messages=long, max_tokens=1)["usage"]

    assert usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"] - 1


def test_a_client_that_leaves_during_an_answer_frees_the_engine_for_the_next(
    http: httpx.Client,
) -> None:
    body = {**HAIKU, "stream": True, "max_tokens": 4000, "temperature": 1.5, "seed": 3}
    with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        pieces = answer.iter_raw()
        for _ in range(4):
            next(pieces)

    assert ask(http)["usage"]["completion_tokens"] == 12


def test_requests_at_the_same_time_wait_for_each_other_and_all_are_answered(
    http: httpx.Client, engine: EngineProcess
) -> None:
    expected = text_of(ask(http))
    answers: list[str] = []

    def one() -> None:
        transport = httpx.HTTPTransport(uds=str(engine.socket_path))
        with httpx.Client(transport=transport, base_url="http://engine", timeout=120) as client:
            answers.append(text_of(ask(client)))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == [expected] * 4


def test_the_official_client_understands_the_answers(engine: EngineProcess) -> None:
    transport = httpx2.HTTPTransport(uds=str(engine.socket_path))
    client = openai.OpenAI(
        api_key="unused",
        base_url="http://engine/v1",
        http_client=httpx2.Client(transport=transport),
        max_retries=0,
    )
    stream = client.chat.completions.create(
        model="any",
        messages=[{"role": "user", "content": "Say hello."}],
        max_tokens=5,
        stream=True,
        stream_options={"include_usage": True},
    )

    received = list(stream)

    assert received[-1].choices == []
    assert received[-1].usage is not None
    assert received[-1].usage.completion_tokens <= 5
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "x"}], temperature=-1
        )


def test_while_the_model_is_loading_every_answer_is_503() -> None:
    app = application(Worker(LoadSettings(Path("not-loaded-yet.gguf"))))

    async def statuses() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            return [
                (await client.get("/health")).status_code,
                (await client.get("/v1/models")).status_code,
                (await client.post("/v1/chat/completions", json=HAIKU)).status_code,
            ]

    assert asyncio.run(statuses()) == [503, 503, 503]


def test_on_loopback_the_key_is_asked_for(tiny_llama: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "veriloop_tui.engine.serving.serve",
        "--load",
        LoadSettings(tiny_llama).to_json(),
    ]
    environment = {**os.environ, "VERILOOP_API_KEY": "open sesame"}
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as served:
        try:
            assert served.stderr is not None
            # Notices may come first.
            url = next(line.split()[-1] for line in served.stderr if " on http" in line)
            with pytest.raises(EngineRefused) as caught:
                EngineClient(Endpoint(base_url=url, api_key="wrong")).facts()
            facts = EngineClient(Endpoint(base_url=url, api_key="open sesame")).facts()
        finally:
            served.terminate()

    assert caught.value.status == 401
    assert (facts.path, facts.file_size) == (url, tiny_llama.stat().st_size)


def test_a_key_opens_everything_but_health(tiny_llama: Path) -> None:
    app = application(Worker(LoadSettings(tiny_llama)), "open sesame")
    paths = ("/v1/models", "/v1/models/x", "/metrics")
    posted = ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize")

    async def statuses(headers: dict[str, str]) -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://engine", headers=headers
        ) as client:
            asked = [await client.get(path) for path in ("/health", *paths)]
            return [
                answer.status_code
                for answer in (*asked, *[await client.post(path, json=HAIKU) for path in posted])
            ]

    assert asyncio.run(statuses({"authorization": "Bearer wrong"})) == [503] + [401] * 7
    assert asyncio.run(statuses({"authorization": "Bearer open sesame"})) == (
        [503, 503, 503, 200] + [503] * 4
    )


def test_more_requests_than_can_wait_are_refused_and_the_next_one_is_not(
    http: httpx.Client,
) -> None:
    body = {**HAIKU, "stream": True, "max_tokens": 4000}
    with ExitStack() as waiting:
        for _ in range(64):
            waiting.enter_context(http.stream("POST", "/v1/chat/completions", json=body))
        refused = http.post("/v1/chat/completions", json=HAIKU)

    assert refused.status_code == 503
    assert "64 requests wait" in refused.json()["error"]["message"]
    while http.post("/v1/chat/completions", json=HAIKU).status_code == 503:
        pass
    assert text_of(ask(http))


def test_a_body_without_end_is_refused(http: httpx.Client) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b" " * (1 << 20)

    assert http.post("/v1/chat/completions", content=endless()).status_code == 413
    assert http.post("/nowhere", content=endless()).status_code == 404
    assert text_of(ask(http))


def test_a_json_schema_is_held_by_a_real_model(http: httpx.Client) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "rain": {"type": "boolean"}},
        "required": ["city", "rain"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "weather", "schema": schema}}

    said = json.loads(text_of(ask(http, response_format=form, max_tokens=80)))

    assert list(said) == ["city", "rain"]
    assert isinstance(said["rain"], bool)


def test_several_candidates_of_a_real_model_differ_and_are_reproducible(http: httpx.Client) -> None:
    def texts() -> list[str]:
        body = ask(http, n=3, temperature=1.5, seed=5, max_tokens=20)
        return [choice["message"]["content"] for choice in body["choices"]]

    first = texts()

    assert len(set(first)) == 3
    assert texts() == first


def test_a_template_without_a_place_for_tools_refuses_them(http: httpx.Client) -> None:
    tool = {"type": "function", "function": {"name": "look"}}
    answer = http.post("/v1/chat/completions", json={**HAIKU, "tools": [tool]})

    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "template_error"
