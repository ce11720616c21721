"""The client against real servers of other kinds, good ones and broken ones."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engine.fake_server import (
    HELLO,
    Asked,
    FakeServer,
    ended,
    events,
    reply,
    said,
    sends,
    serving,
    stream,
    used,
    wait_until_gone,
)
from tests.engine.tls import server_context
from veriloop_tui.core.chat import (
    ChatEvent,
    ChatFinished,
    ChatRequest,
    Grammar,
    Message,
    Sampling,
    TextDelta,
)
from veriloop_tui.engine.client.body import Abilities
from veriloop_tui.engine.client.client import Endpoint, EngineClient
from veriloop_tui.errors import ContextTooLong, EngineRefused, ServerFailed, ServerLacks

NEVER = threading.Event()
QUESTION = ChatRequest((Message("user", "hello"),), Sampling(), 7, 20)


def client(server: FakeServer, key: str = "") -> EngineClient:
    return EngineClient(Endpoint(base_url=server.url, api_key=key, model="m"))


def complete(server: FakeServer, request: ChatRequest = QUESTION) -> list[ChatEvent]:
    return list(client(server).complete(request, NEVER))


def text(answer: list[ChatEvent]) -> str:
    return "".join(event.text for event in answer if isinstance(event, TextDelta))


def test_a_good_answer_arrives_whole_and_the_key_goes_along() -> None:
    with serving(sends(HELLO)) as server:
        answer = list(client(server, "sesame").complete(QUESTION, NEVER))

    assert text(answer) == "hello"
    assert isinstance(answer[-1], ChatFinished)
    (asked,) = server.chats
    assert asked.headers["authorization"] == "Bearer sesame"
    assert (asked.json["model"], asked.json["stream"]) == ("m", True)


def test_without_a_key_none_is_sent() -> None:
    with serving(sends(HELLO)) as server:
        complete(server)

    assert "authorization" not in server.chats[0].headers


def test_a_base_url_may_end_in_v1() -> None:
    with serving(sends(HELLO)) as server:
        endpoint = Endpoint(base_url=server.url + "/v1/")
        assert text(list(EngineClient(endpoint).complete(QUESTION, NEVER))) == "hello"


def test_a_connection_lost_before_the_answer_is_made_again() -> None:
    lost = iter([True, True])

    def script(asked: Asked, connection: socket.socket) -> None:
        if not next(lost, False):
            connection.sendall(HELLO)

    with serving(script) as server:
        assert text(complete(server)) == "hello"

    assert len(server.chats) == 3


def test_a_server_that_never_answers_is_given_up_after_a_few_times() -> None:
    with serving(sends(b"")) as server, pytest.raises(ServerFailed) as caught:
        complete(server)

    assert len(server.chats) == 4
    assert caught.value.server == server.url


@pytest.mark.parametrize(
    "begun",
    [
        b"H",
        b"HTTP/1.1 200 OK\r\n",
        stream(said("hel"), done=False),
        stream(said("hello"), ended(), done=False),
        b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n" + events(said("hello"), ended(), used()),
    ],
    ids=["a byte", "headers", "in the text", "before the usage", "before the end"],
)
def test_a_request_that_was_answered_is_never_made_again(begun: bytes) -> None:
    with serving(sends(begun)) as server, pytest.raises(ServerFailed):
        complete(server)

    assert len(server.chats) == 1


def test_nobody_listening_is_told_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    with pytest.raises(ServerFailed, match=url):
        list(EngineClient(Endpoint(base_url=url)).complete(QUESTION, NEVER))


def test_an_encrypted_server_that_nobody_vouches_for_is_refused_at_once(tmp_path: Path) -> None:
    with (
        serving(sends(HELLO), tls=server_context(tmp_path)) as server,
        pytest.raises(ServerFailed, match="certificate verify failed"),
    ):
        complete(server)

    assert server.asked == []


@pytest.mark.parametrize("header", ["retry-after: 0", "retry-after: Wed, 21 Oct 2015 07:28:00 GMT"])
@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_when_it_says(status: int, header: str) -> None:
    busy = iter([True])

    def script(asked: Asked, connection: socket.socket) -> None:
        connection.sendall(reply(status, b"busy", header) if next(busy, False) else HELLO)

    with serving(script) as server:
        assert text(complete(server)) == "hello"

    assert len(server.chats) == 2


def test_a_server_that_is_busy_for_longer_than_is_borne_refuses() -> None:
    answer = reply(429, {"error": {"message": "come tomorrow"}}, "retry-after: 86400")
    with serving(sends(answer)) as server, pytest.raises(EngineRefused, match="come tomorrow"):
        complete(server)

    assert len(server.chats) == 1


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (reply(400, {"error": {"message": "no such field", "code": 400}}), "no such field"),
        (reply(400, {"object": "error", "message": "as older vLLMs do"}), "as older vLLMs do"),
        (reply(404, {"detail": "Not Found"}), "Not Found"),
        (reply(502, b"<html>bad gateway</html>"), "bad gateway"),
        (reply(500, b""), "500"),
        (reply(302, b"", "location: http://127.0.0.1:1/elsewhere"), "302"),
        (stream({"error": {"message": "out of memory"}}), "out of memory"),
        (stream(said("a")).replace(b"data: [DONE]", b'error: {"message": "boom"}'), "boom"),
    ],
    ids=["error", "vLLM", "detail", "HTML", "empty", "redirect", "in the stream", "error field"],
)
def test_a_refusal_is_told_in_the_servers_words(answer: bytes, named: str) -> None:
    with serving(sends(answer)) as server, pytest.raises(EngineRefused, match=named):
        complete(server)

    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "error",
    [
        {"message": "too long", "n_prompt_tokens": 9_000, "n_ctx": 8_192},
        {
            "message": "This model's maximum context length is 8192 tokens. However, your request "
            "has 9000 input tokens. Please reduce the length of the input messages."
        },
        {
            "message": "This model's maximum context length is 8192 tokens. However, you requested "
            "9100 tokens (9000 in the messages, 100 in the completion)."
        },
    ],
    ids=["llama-server", "vLLM", "older vLLM"],
)
def test_a_prompt_that_is_too_long_is_told_with_both_numbers(error: dict[str, Any]) -> None:
    with (
        serving(sends(reply(400, {"error": error}))) as server,
        pytest.raises(ContextTooLong) as caught,
    ):
        complete(server)

    assert (caught.value.n_prompt, caught.value.n_ctx) == (9_000, 8_192)


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (stream(b"nonsense"), "not JSON"),
        (stream(b"5"), "not a JSON object"),
        (stream(b"[" * 100_000), "not JSON"),
        (stream(b'{"a": ' + b"9" * 10_000 + b"}"), "not JSON"),
        (reply(200, {"choices": [{"message": {"content": "not streamed"}}]}), "broke off"),
        (reply(200, b"<html>a portal</html>"), "broke off"),
        (stream(said("a"), ended(), done=True), "does not report"),
        (stream(said("a", index=1), ended(), used()), "nobody asked for"),
        (stream(said("a", index=-1), ended(), used()), "nobody asked for"),
        (stream(said("a"), ended("abort"), used()), "gave the answer up"),
        (b"nonsense\r\n\r\n", "cannot be used"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000, "cannot be used"),
    ],
)
def test_what_nobody_can_read_ends_in_a_typed_error(answer: bytes, named: str) -> None:
    with serving(sends(answer)) as server, pytest.raises(ServerFailed, match=named):
        complete(server)

    assert len(server.chats) == 1


def test_one_line_without_end_is_cut_off() -> None:
    def script(asked: Asked, connection: socket.socket) -> None:
        connection.sendall(stream(done=False) + b"data: ")
        for _ in range(1_000):
            connection.sendall(b"x" * 1_000_000)

    with serving(script) as server, pytest.raises(ServerFailed, match="too large"):
        complete(server)


def test_a_list_of_models_without_end_is_cut_off() -> None:
    def script(asked: Asked, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
        for _ in range(1_000):
            connection.sendall(b" " * 1_000_000)

    with serving(script) as server, pytest.raises(ServerFailed, match="too large"):
        client(server).facts()


def test_a_refusal_without_end_is_cut_off() -> None:
    def script(asked: Asked, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 500 No\r\nconnection: close\r\n\r\n")
        for _ in range(1_000):
            connection.sendall(b"x" * 1_000_000)

    with serving(script) as server, pytest.raises(EngineRefused):
        complete(server)


def cancelled_when(heard: threading.Event) -> threading.Event:
    """A cancel that is set moments after something has happened."""
    cancel = threading.Event()

    def work() -> None:
        heard.wait()
        cancel.set()

    threading.Thread(target=work, daemon=True).start()
    return cancel


@pytest.mark.parametrize(
    "begun", [b"", stream(said("a"), done=False)], ids=["in silence", "in the text"]
)
def test_a_cancel_ends_the_wait_and_closes_the_connection(begun: bytes) -> None:
    waiting = threading.Event()

    def script(asked: Asked, connection: socket.socket) -> None:
        connection.sendall(begun)
        waiting.set()
        wait_until_gone(connection)
        server.gone.set()

    with serving(script) as server:
        *_, end = client(server).complete(QUESTION, cancelled_when(waiting))
        assert server.gone.wait(30)

    assert isinstance(end, ChatFinished)
    assert end.finish_reason == "cancelled"
    assert len(server.chats) == 1


def test_a_cancel_ends_the_sending_of_a_request_that_nobody_reads() -> None:
    connected = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def accept() -> None:
            connection, _ = listener.accept()
            connected.set()
            kept.append(connection)

        kept: list[socket.socket] = []
        threading.Thread(target=accept, daemon=True).start()
        huge = replace(QUESTION, messages=(Message("user", "x" * 50_000_000),))
        one = EngineClient(Endpoint(base_url=url))
        (end,) = one.complete(huge, cancelled_when(connected))
        kept[0].close()

    assert isinstance(end, ChatFinished)
    assert end.finish_reason == "cancelled"


@pytest.fixture
def unreachable() -> Iterator[str]:
    """The URL of a server whose queue of connections is full, so that another one waits."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        yield f"http://127.0.0.1:{address[1]}"
        for one in waiting:
            one.close()


def test_a_cancel_ends_the_connecting(unreachable: str) -> None:
    now = threading.Event()
    now.set()
    one = EngineClient(Endpoint(base_url=unreachable))

    (end,) = one.complete(QUESTION, cancelled_when(now))

    assert isinstance(end, ChatFinished)
    assert end.finish_reason == "cancelled"


def test_a_cancel_ends_a_handshake_that_nobody_answers() -> None:
    now = threading.Event()
    now.set()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one = EngineClient(Endpoint(base_url=f"https://127.0.0.1:{silent.getsockname()[1]}"))
        (end,) = one.complete(QUESTION, cancelled_when(now))

    assert isinstance(end, ChatFinished)
    assert end.finish_reason == "cancelled"


def test_a_cancel_ends_the_wait_for_a_busy_server() -> None:
    busy = threading.Event()

    def script(asked: Asked, connection: socket.socket) -> None:
        connection.sendall(reply(503, b"busy", "retry-after: 200"))
        busy.set()

    with serving(script) as server:
        (end,) = client(server).complete(QUESTION, cancelled_when(busy))

    assert isinstance(end, ChatFinished)
    assert end.finish_reason == "cancelled"


def test_what_a_server_was_seen_not_to_take_is_not_asked_of_it() -> None:
    able = Abilities("other", grammar=False, continues=False, candidates=False)
    with serving(sends(HELLO)) as server:
        one = EngineClient(Endpoint(base_url=server.url), able=able)
        for request in (
            replace(QUESTION, structure=Grammar('root ::= "a"')),
            replace(QUESTION, continue_final_message=True),
            replace(QUESTION, n=2),
        ):
            with pytest.raises(ServerLacks):
                list(one.complete(request, NEVER))

    assert server.asked == []
