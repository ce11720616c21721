"""Clients that leave, that take nothing, and engines that fail, without a model."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.types import Message

from veriloop_tui.core.chat import ChatEvent, ChatFinished, TextDelta, Timings, Usage
from veriloop_tui.core.ports import Cancel
from veriloop_tui.engine.serving.answering import Completion
from veriloop_tui.engine.serving.metrics import Metrics
from veriloop_tui.engine.serving.wire_answer import TextAnswer
from veriloop_tui.errors import EngineCrashed, EngineError

END = ChatFinished("stop", Usage(1, 1, 0), Timings(1, 1))


class Engine:
    """Says a text again and again until it is cancelled, or fails."""

    def __init__(self, *events: ChatEvent, fails: EngineError | None = None) -> None:
        self._events, self._fails = events, fails
        self.cancelled = False

    async def run(self, cancel: Cancel) -> AsyncIterator[ChatEvent]:
        for event in self._events:
            yield event
        if self._fails is not None:
            raise self._fails
        while not self._events:
            self.cancelled = cancel.is_set()
            if self.cancelled:
                yield END
                return
            yield TextDelta("la")
            await asyncio.sleep(0)


class Client:
    """Takes `takes` messages, then none; leaves if it `leaves`."""

    def __init__(self, takes: int = 1_000, leaves: bool = False) -> None:
        self.received: list[Message] = []
        self._takes, self._leaves = takes, leaves

    async def receive(self) -> Message:
        if not self._leaves:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if len(self.received) == self._takes:
            await asyncio.Event().wait()
        self.received.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.received)


def served(engine: Engine, client: Client, *, stream: bool) -> Metrics:
    metrics = Metrics()
    answer = TextAnswer({"id": "x"}, 1, False)
    completion = Completion(engine.run, answer, stream, metrics, patience_seconds=0.05)
    scope: dict[str, Any] = {"type": "http"}
    asyncio.run(completion(scope, client.receive, client.send))
    return metrics


def test_a_client_that_leaves_ends_the_engines_work() -> None:
    for stream in (False, True):
        engine = Engine()
        metrics = served(engine, Client(leaves=True), stream=stream)

        assert engine.cancelled
        assert metrics.n_unfinished == 0


def test_a_client_that_takes_nothing_is_given_up() -> None:
    engine, client = Engine(TextDelta("a"), TextDelta("b"), END), Client(takes=2)

    served(engine, client, stream=True)

    assert len(client.received) == 2


def test_an_engine_that_fails_is_reported_in_the_stream_and_in_the_status() -> None:
    failing = EngineCrashed("it fell over")
    streamed, whole = Client(), Client()
    served(Engine(TextDelta("a"), fails=failing), streamed, stream=True)
    served(Engine(TextDelta("a"), fails=failing), whole, stream=False)

    events = streamed.body.split(b"\n\n")
    assert "it fell over" in json.loads(events[1].removeprefix(b"data: "))["error"]["message"]
    assert events[2] == b"data: [DONE]"
    assert whole.received[0]["status"] == 500
    assert "it fell over" in json.loads(whole.body)["error"]["message"]


def test_an_answer_without_an_end_is_an_error() -> None:
    client = Client()

    served(Engine(TextDelta("a")), client, stream=False)

    assert client.received[0]["status"] == 500


def test_what_a_completion_took_is_counted() -> None:
    text = served(Engine(TextDelta("a"), END), Client(), stream=True).text()

    assert "veriloop_completion_tokens_total 1\n" in text
    assert 'veriloop_seconds_total{phase="prompt"} 0.001\n' in text
    assert "veriloop_unfinished_requests 0\n" in text
