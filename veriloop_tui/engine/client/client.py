"""The client of an OpenAI-compatible chat server: our own engine, llama-server, vLLM."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpcore

from veriloop_tui.core.chat import ChatEvent, ChatRequest, ModelFacts
from veriloop_tui.core.ports import Cancel
from veriloop_tui.engine.client import facts as chat_facts
from veriloop_tui.engine.client.answer import Answer
from veriloop_tui.engine.client.body import OWN, Abilities, LackingError, body
from veriloop_tui.engine.client.retry import Patience
from veriloop_tui.engine.client.stream import (
    MAX_LIST,
    MAX_REFUSAL,
    GarbledError,
    beginning,
    events,
    json_object,
    whole,
)
from veriloop_tui.engine.client.watched import (
    RequestCancelled,
    SilentError,
    Watch,
    WatchedBackend,
    rest,
)
from veriloop_tui.errors import Cancelled, EngineCrashed, EngineError, ServerFailed, ServerLacks

_CONNECT_SECONDS: Final = 10.0
_WRITE_SECONDS: Final = 60.0
_WHOLE_SECONDS: Final = 30.0
# A long prompt on a slow machine is evaluated in silence, and a busy server lets others go first.
_FIRST_SECONDS: Final = 1_800.0
_BETWEEN_SECONDS: Final = 300.0
# The watch sets the limits for reading; these are for what cannot be watched piece by piece.
_TIMEOUTS: Final = {
    "connect": _CONNECT_SECONDS,
    "write": _WRITE_SECONDS,
    "read": None,
    "pool": 1.0,
}
_BUSY: Final = (429, 503)

_LOST: Final = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    httpcore.UnsupportedProtocol,
)
_ABSENT: Final = (httpcore.NetworkError, httpcore.RemoteProtocolError)

Crash = Callable[[], EngineCrashed | None]


def _never() -> EngineCrashed | None:
    return None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server is: a Unix socket, or a base URL such as `http://127.0.0.1:8001`.

    `model` is what the server calls the model; our own engine ignores it.
    """

    socket_path: Path | None = None
    base_url: str = "http://engine"
    api_key: str = field(default="", repr=False)
    model: str = ""


class EngineClient:
    """A `ChatModel` over HTTP. Each request has a connection of its own; safe for any thread."""

    def __init__(self, endpoint: Endpoint, crash: Crash = _never, able: Abilities = OWN) -> None:
        """`crash` tells, while a request waits, whether the server's process has ended; `able`
        what the server takes."""
        self._endpoint = endpoint
        self._crash = crash
        self._able = able
        self._own = endpoint.socket_path is not None
        self._base = endpoint.base_url.rstrip("/").removesuffix("/v1")
        self._where = "" if self._own else self._base

    def ready(self) -> bool:
        """Whether the server answers and its model is loaded. Raises `EngineCrashed`."""
        try:
            status, _ = self.get("/health")
        except (EngineCrashed, ServerFailed):
            if (crash := self._crash()) is not None:
                raise crash from None
            return False
        return status == 200

    def facts(self) -> ModelFacts:
        """What the server says of its model. Raises `EngineError`.

        A server that is not ours tells less: what it leaves out is 0 or empty.
        """
        status, answer = self.get("/v1/models")
        if status != 200:
            raise chat_facts.refusal(status, answer)
        with self._understood():
            models = chat_facts.listed(json_object(answer)).models
            if not models:
                raise GarbledError("its list of models is empty")
        name = self._endpoint.model if self._endpoint.model in models else next(iter(models))
        return chat_facts.model_facts(name, models[name], self._where)

    def complete(self, request: ChatRequest, cancel: Cancel) -> Iterator[ChatEvent]:
        """Text deltas, then one `ChatFinished`; a set `cancel` closes the connection.

        Raises `ContextTooLong`, `EngineRefused`, `EngineCrashed`, `ServerFailed`, `ServerLacks`.
        A connection that is lost before the first byte of the answer is made again, a few times.
        """
        yield from self.fill(Answer(request.n, time.monotonic), request, cancel)

    def fill(self, answer: Answer, request: ChatRequest, cancel: Cancel) -> Iterator[ChatEvent]:
        """`complete` into an answer that can be looked at afterwards."""
        try:
            content = json.dumps(body(request, self._endpoint.model, self._able)).encode()
        except LackingError as lacking:
            raise ServerLacks(self._where, lacking.lacking, lacking.remedy) from None
        path = "/v1/chat/completions"
        try:
            with self._understood(), self._answered("POST", path, content, cancel) as got:
                told, watch = got
                if told.status != 200:
                    problem = beginning(told.iter_stream(), MAX_REFUSAL)
                    raise chat_facts.refusal(told.status, problem)
                for chunk in events(told.iter_stream()):
                    for event in answer.take(chunk):
                        watch.bear(None if self._own else _BETWEEN_SECONDS)
                        yield event
                    if cancel.is_set():
                        raise RequestCancelled
                yield answer.finished()
        except RequestCancelled:
            yield answer.cancelled()

    def get(self, path: str, cancel: Cancel | None = None) -> tuple[int, bytes]:
        """Status and body of one small document. Raises `EngineError`, `Cancelled`."""
        try:
            with self._understood(), self._answered("GET", path, None, cancel) as (told, _):
                return told.status, whole(told.iter_stream(), MAX_LIST)
        except RequestCancelled:
            raise Cancelled from None

    @contextmanager
    def _answered(
        self, method: str, path: str, content: bytes | None, cancel: Cancel | None
    ) -> Iterator[tuple[httpcore.Response, Watch]]:
        """The beginning of an answer; the rest is read inside. Tries again where that is due."""
        patience = Patience()
        while True:
            watch = self._watch(cancel, whole=content is None)
            try:
                with (
                    self._pool(watch) as pool,
                    pool.stream(
                        method,
                        self._base + path,
                        headers=self._headers(),
                        content=content,
                        extensions={"timeout": _TIMEOUTS},
                    ) as told,
                ):
                    pause = self._pause_if_busy(told, patience)
                    if pause is None:
                        yield told, watch
                        return
            except _ABSENT as lost:
                # A certificate does not get better; httpcore hands its error on as an argument.
                unknown = any(isinstance(one, ssl.SSLError) for one in lost.args)
                again = not (self._own or watch.heard_any or unknown)
                pause = patience.after_loss() if again else None
                if pause is None:
                    raise self._lost(lost) from lost
            except _LOST as lost:
                raise self._lost(lost) from lost
            rest(pause, self._watch(cancel, whole=False))

    def _pause_if_busy(self, told: httpcore.Response, patience: Patience) -> float | None:
        if self._own or told.status not in _BUSY:
            return None
        return patience.after_busy(chat_facts.retry_after(told.headers, time.time()))

    def _watch(self, cancel: Cancel | None, *, whole: bool) -> Watch:
        def ask() -> None:
            if cancel is not None and cancel.is_set():
                raise RequestCancelled
            if (crash := self._crash()) is not None:
                raise crash

        if whole:
            return Watch(ask, total=_WHOLE_SECONDS)
        # Our own engine's process is watched itself, and may take its time.
        return Watch(ask, silence=None if self._own else _FIRST_SECONDS)

    def _pool(self, watch: Watch) -> httpcore.ConnectionPool:
        path = self._endpoint.socket_path
        return httpcore.ConnectionPool(
            uds=str(path) if path is not None else None,
            network_backend=WatchedBackend(watch),
            socket_options=_KEEP_ALIVE if path is None else None,
        )

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Say of what nobody understands whose it is."""
        try:
            yield
        except GarbledError as garbled:
            raise self._failure(garbled.problem) from garbled
        except SilentError as silent:
            raise self._failure(str(silent)) from silent

    def _failure(self, problem: str) -> EngineError:
        return EngineCrashed(problem) if self._own else ServerFailed(self._where, problem)

    def _lost(self, problem: Exception) -> EngineError:
        """The process's own death says more than the broken connection that it left behind."""
        deadline = time.monotonic() + (0.5 if self._own else 0.0)
        while (crash := self._crash()) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return crash or self._failure(str(problem) or "the connection was lost")

    def _headers(self) -> dict[bytes | str, bytes | str]:
        headers: dict[bytes | str, bytes | str] = {"Content-Type": "application/json"}
        if self._endpoint.api_key:
            headers["Authorization"] = f"Bearer {self._endpoint.api_key}"
        return headers


def _keep_alive() -> tuple[httpcore.SOCKET_OPTION, ...]:
    """A peer whose machine is gone is noticed within two minutes, however long it is silent."""
    wanted = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
    there = ((getattr(socket, name, None), value) for name, value in wanted.items())
    return (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        *((socket.IPPROTO_TCP, option, value) for option, value in there if option is not None),
    )


_KEEP_ALIVE: Final = _keep_alive()
