"""The engine's process: an OpenAI-compatible server on a Unix socket or on loopback.

Run as `python -m veriloop_tui.engine.serve --load JSON --socket PATH`.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import ipaddress
import logging
import os
import secrets
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from veriloop_tui.core.chat import ChatEvent, ChatFinished, TextDelta
from veriloop_tui.engine import wire
from veriloop_tui.engine.job import Job
from veriloop_tui.engine.loading import Loaded
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.engine.worker import Worker
from veriloop_tui.errors import EngineCrashed, EngineError, EngineRefused, UsageError

_MAX_BODY: Final = 64 << 20
_KEY_VARIABLE: Final = "VERILOOP_API_KEY"


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """What to serve and where: on `socket_path`, or on a loopback `host` and `port` with a key."""

    load: LoadSettings
    socket_path: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    api_key: str = ""


class _Answer(Response):
    """Runs one completion and sends it, until it ends or the client goes away."""

    def __init__(self, worker: Worker, loaded: Loaded, job: Job, body: wire.ChatBody) -> None:
        super().__init__()
        self._worker, self._loaded, self._job, self._body = worker, loaded, job, body
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": loaded.facts.name,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = threading.Event()
        watch = asyncio.create_task(_wait_until_gone(receive, gone))
        try:
            if self._body.stream:
                await self._stream(gone, send)
            else:
                await (await self._whole(gone))(scope, receive, send)
        finally:
            gone.set()
            watch.cancel()

    async def _whole(self, gone: threading.Event) -> Response:
        text = ""
        events = self._worker.run(self._loaded, self._job, gone)
        try:
            async for event in events:
                match event:
                    case TextDelta():
                        text += event.text
                    case ChatFinished():
                        return JSONResponse(wire.whole_answer(self._head, text, event))
        except EngineError as error:
            return _refusal(error)
        raise EngineCrashed("a completion ended without a last event")

    async def _stream(self, gone: threading.Event, send: Send) -> None:
        # Sent before the prefill: the client knows at once that its prompt was accepted.
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await _send(send, wire.sse(wire.chunk(self._head, {"role": "assistant", "content": ""})))
        try:
            async for event in self._worker.run(self._loaded, self._job, gone):
                await _send(send, self._encode(event))
        except EngineError as error:
            await _send(send, wire.sse(wire.error_answer(error)[1]))
        await _send(send, b"data: [DONE]\n\n", more=False)

    def _encode(self, event: ChatEvent) -> bytes:
        if isinstance(event, TextDelta):
            return wire.sse(wire.chunk(self._head, {"content": event.text}))
        assert isinstance(event, ChatFinished)
        spent = wire.usage_fields(event)
        last = wire.sse({**wire.chunk(self._head, {}, event.finish_reason), **spent})
        options = self._body.stream_options
        if options is None or not options.include_usage:
            return last
        # The protocol puts the usage into one more chunk, without choices.
        return last + wire.sse({**wire.chunk(self._head, {}), "choices": [], **spent})


async def _send(send: Send, body: bytes, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _wait_until_gone(receive: Receive, gone: threading.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()


def _refusal(error: EngineError) -> Response:
    status, body = wire.error_answer(error)
    return JSONResponse(body, status)


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_BODY:
            raise EngineRefused(413, f"the request is larger than {_MAX_BODY >> 20} MiB")
    return bytes(body)


def application(worker: Worker, api_key: str = "") -> Starlette:
    """The HTTP interface on `worker`; a non-empty key is asked for in `Authorization`."""

    def loaded(request: Request) -> Loaded:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if api_key and not hmac.compare_digest(given.encode(), api_key.encode()):
            raise EngineRefused(401, "the API key is missing or wrong")
        if worker.loaded is None:
            raise EngineRefused(503, "the model is still loading")
        return worker.loaded

    async def health(_request: Request) -> Response:
        if worker.loaded is None:
            return _refusal(EngineRefused(503, "the model is still loading"))
        return JSONResponse({"status": "ok"})

    async def models(request: Request) -> Response:
        return JSONResponse(wire.models_answer(loaded(request).facts))

    async def complete(request: Request) -> Response:
        ready = loaded(request)
        body = wire.parse_body(await _body(request))
        job = await asyncio.to_thread(ready.prepare, body.core())
        return _Answer(worker, ready, job, body)

    async def refused(_request: Request, error: Exception) -> Response:
        assert isinstance(error, EngineError)
        return _refusal(error)

    async def left(_request: Request, _error: Exception) -> Response:
        return Response(status_code=499)

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/v1/models", models),
            Route("/v1/chat/completions", complete, methods=["POST"]),
        ],
        exception_handlers={EngineError: refused, ClientDisconnect: left},
    )


def listen(settings: ServeSettings) -> socket.socket:
    """The listening socket: a Unix socket of mode 0600, or a loopback address.

    Raises `UsageError` where it cannot be had.
    """
    try:
        if settings.socket_path is None:
            return _listen_loopback(settings)
        return _listen_unix(settings.socket_path)
    except OSError as problem:
        where = settings.socket_path or f"{settings.host}:{settings.port}"
        reason = problem.strerror or problem
        raise UsageError(f"The engine cannot listen on {where}: {reason}.") from problem


def _listen_unix(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_socket():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise UsageError(f"Another engine listens on {path}; end that one first.")
        path.unlink()
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    return listener


def _listen_loopback(settings: ServeSettings) -> socket.socket:
    try:
        address = ipaddress.ip_address(settings.host)
    except ValueError:
        raise UsageError(f"'{settings.host}' is not an IP address.") from None
    if not address.is_loopback:
        raise UsageError(f"{settings.host} is not a loopback address; use an SSH tunnel instead.")
    if not settings.api_key:
        raise UsageError(f"A TCP port needs a key: set {_KEY_VARIABLE}, or use --socket.")
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((settings.host, settings.port))
    return listener


def run(settings: ServeSettings) -> None:
    """Serve until SIGINT or SIGTERM; for the main thread. Raises `UsageError`, `EngineError`."""
    listener = listen(settings)
    # uvicorn stops on a signal, then raises it again for the handler before it: that one must
    # leave us the time to free the model and remove the socket.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    try:
        asyncio.run(_serve(settings, listener))
    finally:
        listener.close()
        if settings.socket_path is not None:
            settings.socket_path.unlink(missing_ok=True)


async def _serve(settings: ServeSettings, listener: socket.socket) -> None:
    worker = Worker(settings.load)
    config = uvicorn.Config(
        application(worker, settings.api_key),
        log_level=logging.WARNING,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    loading = asyncio.create_task(worker.load())
    await asyncio.wait((serving, loading), return_when=asyncio.FIRST_COMPLETED)
    failure = loading.exception() if loading.done() else None
    if failure is not None:
        server.should_exit = True
    elif loading.done():
        _say(f"Serving {settings.load.model.name} on {_where(settings, listener)}")
    await serving
    await asyncio.to_thread(worker.stop)
    await asyncio.wait((loading,))
    if failure is not None:
        raise failure


def _where(settings: ServeSettings, listener: socket.socket) -> str:
    if settings.socket_path is not None:
        return str(settings.socket_path)
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def die_with_parent() -> None:
    """End this process when the one that started it ends.

    Not by PR_SET_PDEATHSIG: that follows the parent's *thread*, and apps start engines from
    threads that end. The pipe on stdin closes with the parent; its id is watched as well, since
    a fork of the parent may hold the pipe open.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            ready, _, _ = select.select([0], [], [], 0.5)
            if ready and not os.read(0, 1):
                break
        os._exit(0)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of the engine's process; returns its exit code."""
    parser = argparse.ArgumentParser(prog="veriloop-engine")
    parser.add_argument("--load", type=LoadSettings.from_json, required=True, metavar="JSON")
    parser.add_argument("--socket", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--die-with-parent", action="store_true")
    given: Any = parser.parse_args(arguments)
    if given.die_with_parent:
        die_with_parent()
    key = os.environ.get(_KEY_VARIABLE, "")
    try:
        run(ServeSettings(given.load, given.socket, given.host, given.port, key))
    except (UsageError, EngineError) as error:
        _say(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
