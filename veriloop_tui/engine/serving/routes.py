"""The engine's HTTP interface: which path does what, for whom, and within which bounds."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from veriloop_tui.core.chat import ChatEvent, Sampling
from veriloop_tui.core.ports import Cancel
from veriloop_tui.engine.answer.prepare import answer_form, prepare, prepare_text
from veriloop_tui.engine.answer.reading import AnswerForm, Reading
from veriloop_tui.engine.decoding.llama import Vocabulary
from veriloop_tui.engine.decoding.sampler import Sampler
from veriloop_tui.engine.job import Job
from veriloop_tui.engine.model.loading import Loaded
from veriloop_tui.engine.model.worker import Worker
from veriloop_tui.engine.serving.answering import Completion, refusal
from veriloop_tui.engine.serving.metrics import CONTENT_TYPE, Metrics
from veriloop_tui.engine.serving.wire_answer import (
    ChatAnswer,
    Object,
    TextAnswer,
    model_answer,
    models_answer,
)
from veriloop_tui.engine.serving.wire_chat import ChatBody
from veriloop_tui.engine.serving.wire_fields import parse
from veriloop_tui.engine.serving.wire_text import DetokeniseBody, TextBody, TokeniseBody
from veriloop_tui.errors import EngineError, EngineRefused

_MAX_BODY: Final = 32 << 20
_BODY_SECONDS: Final = 60.0
# What is refused before the body was read to its end.
_UNREAD: Final = (401, 404, 405, 408, 413, 503)
# One runs, the others wait: more would wait for longer than anybody does.
_MAX_UNFINISHED: Final = 64


def application(worker: Worker, api_key: str = "") -> ASGIApp:
    """The interface on `worker`; a non-empty key is asked for in `Authorization`."""
    metrics = Metrics()
    routes = _Routes(worker, api_key, metrics)
    paths = {
        "/health": (routes.health, "GET"),
        "/metrics": (routes.metrics_text, "GET"),
        "/v1/models": (routes.models, "GET"),
        "/v1/chat/completions": (routes.chat, "POST"),
        "/v1/completions": (routes.text, "POST"),
        "/tokenize": (routes.tokenise, "POST"),
        "/detokenize": (routes.detokenise, "POST"),
    }
    app = Starlette(
        routes=[
            *(Route(path, serve, methods=[method]) for path, (serve, method) in paths.items()),
            Route("/v1/models/{name:path}", routes.model),
        ],
        exception_handlers={
            EngineError: _refused,
            ClientDisconnect: _left,
            HTTPException: _not_served,
            Exception: _failed,
        },
    )
    return _Counted(app, metrics, frozenset(paths))


class _Routes:
    """One method for each path."""

    def __init__(self, worker: Worker, api_key: str, metrics: Metrics) -> None:
        self._worker, self._key, self._metrics = worker, api_key.encode(), metrics

    async def health(self, _request: Request) -> Response:
        if self._worker.loaded is None:
            return refusal(_loading())
        return JSONResponse({"status": "ok"})

    async def metrics_text(self, request: Request) -> Response:
        self._check_key(request)
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    async def models(self, request: Request) -> Response:
        ready = self._loaded(request)
        return JSONResponse(models_answer(ready.facts))

    async def model(self, request: Request) -> Response:
        ready = self._loaded(request)
        if request.path_params["name"] != ready.facts.name:
            raise EngineRefused(404, f"the model served here is '{ready.facts.name}'")
        return JSONResponse(model_answer(ready.facts))

    async def chat(self, request: Request) -> Response:
        ready = self._free(request)
        body = parse(ChatBody, await _body(request))
        wanted = body.core()
        vocabulary = ready.model.vocabulary

        def ready_job() -> Job:
            job = prepare(wanted, ready.template, vocabulary.tokenise, ready.memory.n_ctx)
            _check_grammar(job, vocabulary)
            return job

        job = await asyncio.to_thread(ready_job)
        form = answer_form(wanted, ready.template, job)
        answer = ChatAnswer(
            _head("chatcmpl", ready),
            job.n,
            body.wants_usage,
            lambda text: len(vocabulary.parse(text)),
        )

        def run(cancel: Cancel) -> AsyncIterator[ChatEvent]:
            return _read(self._worker.run(ready, job, cancel), form, job.n)

        return Completion(run, answer, body.stream, self._metrics)

    async def text(self, request: Request) -> Response:
        ready = self._free(request)
        body = parse(TextBody, await _body(request))
        vocabulary = ready.model.vocabulary

        def ready_job() -> Job:
            job = prepare_text(
                body.core(), vocabulary.tokenise, vocabulary.size, ready.memory.n_ctx
            )
            _check_grammar(job, vocabulary)
            return job

        job = await asyncio.to_thread(ready_job)
        answer = TextAnswer(_head("cmpl", ready), job.n, body.wants_usage)

        def run(cancel: Cancel) -> AsyncIterator[ChatEvent]:
            return self._worker.run(ready, job, cancel)

        return Completion(run, answer, body.stream, self._metrics)

    async def tokenise(self, request: Request) -> Response:
        ready = self._loaded(request)
        body = parse(TokeniseBody, await _body(request))
        return JSONResponse(await asyncio.to_thread(_tokenised, body, ready))

    async def detokenise(self, request: Request) -> Response:
        ready = self._loaded(request)
        tokens = parse(DetokeniseBody, await _body(request)).tokens
        pieces = await asyncio.to_thread(_pieces, tokens, ready)
        return JSONResponse({"content": b"".join(pieces).decode("utf-8", "replace")})

    def _check_key(self, request: Request) -> None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._key and not hmac.compare_digest(given.encode(), self._key):
            raise EngineRefused(401, "the API key is missing or wrong")

    def _loaded(self, request: Request) -> Loaded:
        self._check_key(request)
        if self._worker.loaded is None:
            raise _loading()
        return self._worker.loaded

    def _free(self, request: Request) -> Loaded:
        ready = self._loaded(request)
        if self._metrics.n_unfinished >= _MAX_UNFINISHED:
            raise EngineRefused(503, f"{_MAX_UNFINISHED} requests wait already; try again later")
        return ready


class _Counted:
    """Counts the answers by path and status."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: frozenset[str]) -> None:
        self._app, self._metrics, self._paths = app, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in self._paths else "other"

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.answered(path, message["status"])
            await send(message)

        await self._app(scope, receive, counted)


async def _read(
    raw: AsyncIterator[ChatEvent], form: AnswerForm, n: int
) -> AsyncIterator[ChatEvent]:
    """The events as they are to be understood."""
    reading = Reading(form, n, lambda: f"call_{secrets.token_hex(12)}")
    async for event in raw:
        for made in reading.take(event):
            yield made


async def _body(request: Request) -> bytes:
    """The body, of bounded size, and within bounded time."""
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > _MAX_BODY:
                    raise EngineRefused(413, f"the request is larger than {_MAX_BODY >> 20} MiB")
    except TimeoutError:
        raise EngineRefused(408, "the request's body did not arrive in time") from None
    return bytes(body)


def _tokenised(body: TokeniseBody, ready: Loaded) -> Object:
    """The tokens, and how many of them the context holds: a prompt needs fewer."""
    vocabulary = ready.model.vocabulary
    if body.messages is not None:
        text = ready.template.render(
            [message.core() for message in body.messages],
            body.continue_final_message,
            [tool.core() for tool in body.tools or ()],
            tuple((body.chat_template_kwargs or {}).items()),
        )
        tokens = vocabulary.tokenise(text)
    else:
        text = body.content or ""
        tokens = vocabulary.tokenise(text) if body.add_special else vocabulary.parse(text)
    shown: list[Any] = list(tokens)
    if body.with_pieces:
        pieces = _pieces(tokens, ready)
        shown = [
            {"id": token, "piece": _piece(piece)}
            for token, piece in zip(tokens, pieces, strict=True)
        ]
    return {"tokens": shown, "count": len(tokens), "n_ctx": ready.memory.n_ctx}


def _pieces(tokens: list[int], ready: Loaded) -> list[bytes]:
    """The bytes of each token. The decode thread's vocabulary is not for a second thread."""
    vocabulary = Vocabulary(ready.model.handle)
    if any(token >= vocabulary.size for token in tokens):
        raise EngineRefused(400, f"tokens: the model has the tokens 0 to {vocabulary.size - 1}")
    return [vocabulary.piece(token) for token in tokens]


def _piece(data: bytes) -> str | list[int]:
    """The text of a token, or its bytes where they are no text, as llama-server gives them."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return list(data)


def _check_grammar(job: Job, vocabulary: Vocabulary) -> None:
    """Refuse a grammar that llama.cpp refuses before anything is sent."""
    if job.grammar:
        with Sampler(Sampling(), 0, vocabulary) as sampler:
            sampler.constrain(job.grammar)


def _head(kind: str, ready: Loaded) -> Object:
    ident = f"{kind}-{secrets.token_hex(12)}"
    return {"id": ident, "created": int(time.time()), "model": ready.facts.name}


def _loading() -> EngineRefused:
    return EngineRefused(503, "the model is still loading")


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, EngineError)
    answer = refusal(error)
    if answer.status_code in _UNREAD:
        # Otherwise the rest of the request would be received, however long it is.
        answer.headers["connection"] = "close"
    return answer


async def _left(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)


async def _not_served(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = error.status_code
    what = f"{request.method} {request.url.path}: {HTTPStatus(status).phrase.lower()}"
    return await _refused(request, EngineRefused(status, what))


async def _failed(_request: Request, _error: Exception) -> Response:
    """A bug of ours: starlette raises it again, so that it is logged."""
    return refusal(EngineRefused(500, "the engine failed; its log says how"))
