"""The client of an OpenAI-compatible chat server: our own engine, llama-server, vLLM."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, get_args

import httpcore

from veriloop_tui.core.chat import (
    ChatEvent,
    ChatFinished,
    ChatRequest,
    FinishReason,
    ModelFacts,
    TextDelta,
    Timings,
    Usage,
)
from veriloop_tui.core.ports import Cancel
from veriloop_tui.engine.watched import RequestCancelled, WatchedBackend
from veriloop_tui.errors import ContextTooLong, EngineCrashed, EngineError, EngineRefused

_CONNECT_SECONDS: Final = 10.0
# No limit on silence while reading: a long prefill is silent. The watch ends a hopeless wait.
_TIMEOUTS: Final = {"connect": _CONNECT_SECONDS, "write": 60.0, "read": None, "pool": 1.0}
_MAX_ANSWER: Final = 64 << 20
_FINISH_REASONS: Final = get_args(FinishReason)

_LOST: Final = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    httpcore.UnsupportedProtocol,
)

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

    def __init__(self, endpoint: Endpoint, crash: Crash = _never) -> None:
        """`crash` tells, while a request waits, whether the server's process has ended."""
        self._endpoint = endpoint
        self._crash = crash

    def ready(self) -> bool:
        """Whether the server answers and its model is loaded. Raises `EngineCrashed`."""
        try:
            status, _ = self._whole("GET", "/health", None)
        except EngineCrashed:
            if (crash := self._crash()) is not None:
                raise crash from None
            return False
        return status == 200

    def facts(self) -> ModelFacts:
        """What the server says of its model. Raises `EngineError`.

        A server that is not ours tells less: what it leaves out is 0 or empty.
        """
        status, body = self._whole("GET", "/v1/models", None)
        if status != 200:
            raise _refusal(status, body)
        models = _object(body).get("data")
        if not isinstance(models, list) or not models or not isinstance(models[0], dict):
            raise EngineRefused(status, "the list of models is empty or not understood")
        wanted = self._endpoint.model
        named = [one for one in models if isinstance(one, dict) and one.get("id") == wanted]
        return _facts((named or models)[0], self._endpoint.base_url)

    def complete(self, request: ChatRequest, cancel: Cancel) -> Iterator[ChatEvent]:
        """Text deltas, then one `ChatFinished`; a set `cancel` closes the connection.

        Raises `ContextTooLong`, `EngineRefused`, `EngineCrashed`.
        """
        answer = _Answer(time.monotonic)
        try:
            body = json.dumps(_body(request, self._endpoint.model)).encode()
            with (
                self._pool(cancel) as pool,
                pool.stream(
                    "POST",
                    self._url("/v1/chat/completions"),
                    headers=self._headers(),
                    content=body,
                    extensions={"timeout": _TIMEOUTS},
                ) as response,
            ):
                if response.status != 200:
                    raise _refusal(response.status, _bounded(response.iter_stream()))
                for data in _sse(response.iter_stream()):
                    yield from answer.take(data)
                    if cancel.is_set():
                        raise RequestCancelled
        except RequestCancelled:
            yield answer.cancelled()
            return
        except _LOST as lost:
            raise self._lost(lost) from lost
        yield answer.finished()

    def _whole(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        timeouts = {"connect": _CONNECT_SECONDS, "write": 10.0, "read": 10.0, "pool": 1.0}
        try:
            with (
                self._pool(None) as pool,
                pool.stream(
                    method,
                    self._url(path),
                    headers=self._headers(),
                    content=content,
                    extensions={"timeout": timeouts},
                ) as response,
            ):
                return response.status, _bounded(response.iter_stream())
        except _LOST as lost:
            raise self._lost(lost) from lost

    def _pool(self, cancel: Cancel | None) -> httpcore.ConnectionPool:
        def watch() -> None:
            if cancel is not None and cancel.is_set():
                raise RequestCancelled
            if (crash := self._crash()) is not None:
                raise crash

        path = self._endpoint.socket_path
        return httpcore.ConnectionPool(
            uds=str(path) if path is not None else None, network_backend=WatchedBackend(watch)
        )

    def _lost(self, problem: Exception) -> EngineCrashed:
        """The process's own death says more than the broken connection that it left behind."""
        deadline = time.monotonic() + 0.5
        while (crash := self._crash()) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return crash or EngineCrashed(str(problem) or "the connection was lost")

    def _url(self, path: str) -> str:
        return self._endpoint.base_url.rstrip("/").removesuffix("/v1") + path

    def _headers(self) -> dict[bytes | str, bytes | str]:
        headers: dict[bytes | str, bytes | str] = {"Content-Type": "application/json"}
        if self._endpoint.api_key:
            headers["Authorization"] = f"Bearer {self._endpoint.api_key}"
        return headers


class _Answer:
    """What has arrived of one answer. A server without timings has them measured from here."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun = clock()
        self._first: float | None = None
        self._deltas = 0
        self._reason: FinishReason | None = None
        self._usage: Usage | None = None
        self._timings: Timings | None = None

    def take(self, data: dict[str, Any]) -> Iterator[TextDelta]:
        """One chunk of the stream."""
        if isinstance(error := data.get("error"), dict):
            raise EngineRefused(500, str(error.get("message", "no reason given")))
        if isinstance(usage := data.get("usage"), dict):
            self._usage = _usage(usage)
        if isinstance(timings := data.get("timings"), dict):
            self._timings = Timings(_number(timings, "prompt_ms"), _number(timings, "predicted_ms"))
        choices = data.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return
        reason = choices[0].get("finish_reason")
        if reason is not None:
            self._reason = reason if reason in _FINISH_REASONS else "stop"
        delta = choices[0].get("delta")
        text = delta.get("content") if isinstance(delta, dict) else None
        if isinstance(text, str) and text:
            self._first = self._first or self._clock()
            self._deltas += 1
            yield TextDelta(text)

    def finished(self) -> ChatFinished:
        """The end as the server told it."""
        if self._reason is None:
            raise EngineCrashed("the answer broke off")
        if self._usage is None:
            raise EngineRefused(200, "the server does not report its token usage")
        return ChatFinished(self._reason, self._usage, self._timings or self._measured())

    def cancelled(self) -> ChatFinished:
        """The end of an answer that was given up; its prompt's tokens are not known."""
        return ChatFinished("cancelled", Usage(0, self._deltas, 0), self._measured())

    def _measured(self) -> Timings:
        now = self._clock()
        first = self._first or now
        return Timings((first - self._begun) * 1e3, (now - first) * 1e3)


def _body(request: ChatRequest, model: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "messages": [asdict(message) for message in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": request.seed,
        "max_tokens": request.max_tokens,
        **asdict(request.sampling),
    }
    if request.stop:
        body["stop"] = list(request.stop)
    if request.continue_final_message:
        # The second field is what vLLM wants beside the first.
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    return body


def _sse(pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events, up to `[DONE]`."""
    buffer = b""
    for piece in pieces:
        buffer += piece
        *lines, buffer = buffer.split(b"\n")
        if len(buffer) > _MAX_ANSWER:
            raise EngineRefused(200, "one event of the stream is too large")
        for line in lines:
            name, _, value = line.partition(b":")
            if name != b"data":
                continue
            if value.strip() == b"[DONE]":
                return
            yield _object(value)


def _bounded(pieces: Iterable[bytes]) -> bytes:
    body = b""
    for piece in pieces:
        body += piece
        if len(body) > _MAX_ANSWER:
            raise EngineRefused(200, "the answer is too large")
    return body


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError as problem:
        raise EngineRefused(200, f"the answer is not JSON ({problem})") from None
    if not isinstance(value, dict):
        raise EngineRefused(200, "the answer is not a JSON object")
    return value


def _refusal(status: int, body: bytes) -> EngineError:
    """The error that a refusing answer stands for."""
    try:
        error = json.loads(body)["error"]
        message = str(error["message"])
    except (ValueError, LookupError, TypeError):
        return EngineRefused(status, body[:500].decode("utf-8", "replace"))
    n_prompt, n_ctx = error.get("n_prompt_tokens"), error.get("n_ctx")
    if isinstance(n_prompt, int) and isinstance(n_ctx, int):
        return ContextTooLong(n_prompt, n_ctx)
    return EngineRefused(status, message)


def _usage(usage: dict[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details")
    reused = int(_number(details, "cached_tokens")) if isinstance(details, dict) else 0
    made = int(_number(usage, "completion_tokens"))
    return Usage(int(_number(usage, "prompt_tokens")), made, reused)


def _number(values: dict[str, Any], key: str) -> float:
    value = values.get(key)
    return float(value) if isinstance(value, int | float) else 0.0


def _facts(model: dict[str, Any], where: str) -> ModelFacts:
    found = model.get("meta")
    meta: dict[str, Any] = found if isinstance(found, dict) else {}
    if all(one.name in meta for one in fields(ModelFacts)):
        return ModelFacts(**{one.name: meta[one.name] for one in fields(ModelFacts)})
    # llama-server's names first, then vLLM's.
    return ModelFacts(
        name=str(model.get("id", "")),
        architecture="",
        path=where,
        file_size=int(_number(meta, "size")),
        parameters=int(_number(meta, "n_params")),
        quant="",
        bpw=0.0,
        n_ctx=int(_number(meta, "n_ctx") or _number(model, "max_model_len")),
        file_digest="",
        template_hash="",
    )
