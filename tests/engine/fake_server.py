"""A real HTTP server of the test's own making: it is told what to send, byte by byte."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


Script = Callable[[Asked, socket.socket], None]


@dataclass(slots=True)
class FakeServer:
    """What has been asked so far, and where."""

    url: str
    asked: list[Asked] = field(default_factory=list)
    gone: threading.Event = field(default_factory=threading.Event)

    @property
    def chats(self) -> list[Asked]:
        return [one for one in self.asked if one.path == "/v1/chat/completions"]


@contextmanager
def serving(
    script: Script, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> Iterator[FakeServer]:
    """Answer each request by `script`, in a thread of its own; the connection ends after it."""
    with socket.create_server((host, 0)) as plain:
        listener = plain
        if tls is not None:
            # The handshake belongs to the connection's thread: a client may break it off.
            listener = tls.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        scheme = "http" if tls is None else "https"
        server = FakeServer(f"{scheme}://{host}:{listener.getsockname()[1]}")
        accepting = threading.Thread(
            target=_accept, args=(listener, script, server), name="fake-server", daemon=True
        )
        accepting.start()
        try:
            yield server
        finally:
            # On Linux this wakes the thread in `accept`; closing alone does not.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            accepting.join(5)


def _accept(listener: socket.socket, script: Script, server: FakeServer) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(connection, script, server), daemon=True).start()


def _answer(connection: socket.socket, script: Script, server: FakeServer) -> None:
    with connection, suppress(ConnectionError, ssl.SSLError):
        asked = _read(connection)
        if asked is None:
            return
        server.asked.append(asked)
        script(asked, connection)


def _read(connection: socket.socket) -> Asked | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65_536)
        if not piece:
            return None
        data += piece
    head, _, content = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    wanted = int(headers.get("content-length", 0))
    while len(content) < wanted:
        content += connection.recv(65_536)
    return Asked(method, path, headers, content)


def wait_until_gone(connection: socket.socket) -> None:
    """Until the client has closed the connection."""
    with suppress(ConnectionError):
        while connection.recv(65_536):
            pass


def reply(status: int, content: bytes | dict[str, Any], *headers: str) -> bytes:
    """A whole answer."""
    if isinstance(content, dict):
        content = json.dumps(content).encode()
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(content)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + content


def stream(*chunks: dict[str, Any] | bytes, done: bool = True) -> bytes:
    """A streamed answer, which ends with the connection."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return head + events(*chunks) + (b"data: [DONE]\n\n" if done else b"")


def events(*chunks: dict[str, Any] | bytes) -> bytes:
    """Server-sent events."""
    bodies = (one if isinstance(one, bytes) else json.dumps(one).encode() for one in chunks)
    return b"".join(b"data: " + body + b"\n\n" for body in bodies)


def said(text: str | None, index: int = 0, **delta: Any) -> dict[str, Any]:
    """A chunk with a piece of text, and what else belongs to its delta."""
    return {"choices": [{"index": index, "delta": {"content": text, **delta}}]}


def ended(reason: str = "stop", index: int = 0) -> dict[str, Any]:
    """A chunk that ends a candidate."""
    return {"choices": [{"index": index, "delta": {}, "finish_reason": reason}]}


def used(prompt: int = 5, made: int = 2, cached: int = 0, **more: Any) -> dict[str, Any]:
    """The chunk with the usage."""
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": made,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return {"choices": [], "usage": usage, **more}


HELLO = stream(said("hel"), said("lo"), ended(), used())


def sends(data: bytes) -> Script:
    """Sends the same to every request."""
    return lambda _, connection: connection.sendall(data)
