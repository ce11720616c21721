"""Sending one completion while it is made, and noticing that its client has left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from veriloop_tui.core.chat import ChatEvent, ChatFinished
from veriloop_tui.core.ports import Cancel
from veriloop_tui.engine.serving.metrics import Metrics
from veriloop_tui.engine.serving.wire_answer import Answer, error_answer, sse
from veriloop_tui.errors import EngineCrashed, EngineError

# A client that takes nothing for so long is taken for gone.
PATIENCE_SECONDS: Final = 60.0

Run = Callable[[Cancel], AsyncIterator[ChatEvent]]


class Completion(Response):
    """Runs one completion and sends it, until it ends or the client goes away."""

    def __init__(
        self,
        run: Run,
        answer: Answer,
        stream: bool,
        metrics: Metrics,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`run` makes the events until it is cancelled."""
        super().__init__()
        self._run, self._answer, self._is_stream = run, answer, stream
        self._metrics, self._patience = metrics, patience_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = threading.Event()
        watch = asyncio.create_task(_wait_until_gone(receive, gone))
        self._metrics.n_unfinished += 1
        try:
            if self._is_stream:
                await self._stream(gone, send)
            else:
                await (await self._whole(gone))(scope, receive, send)
        finally:
            self._metrics.n_unfinished -= 1
            gone.set()
            watch.cancel()

    async def _whole(self, gone: threading.Event) -> Response:
        ended = False
        try:
            async for event in self._run(gone):
                self._answer.take(event)
                ended = ended or self._note(event)
        except EngineError as error:
            return refusal(error)
        if not ended:
            return refusal(EngineCrashed("a completion ended without a last event"))
        return JSONResponse(self._answer.whole())

    async def _stream(self, gone: threading.Event, send: Send) -> None:
        # Sent before the prefill: the client knows at once that its prompt was accepted.
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            await self._send(send, b"".join(map(sse, self._answer.begin())))
            async for event in self._run(gone):
                self._note(event)
                await self._send(send, b"".join(map(sse, self._answer.take(event))))
        except EngineError as error:
            await self._send(send, sse(error_answer(error)[1]))
        except TimeoutError:
            return
        await self._send(send, b"data: [DONE]\n\n", more=False)

    async def _send(self, send: Send, body: bytes, more: bool = True) -> None:
        if body or not more:
            async with asyncio.timeout(self._patience):
                await send({"type": "http.response.body", "body": body, "more_body": more})

    def _note(self, event: ChatEvent) -> bool:
        """Whether this was the last event."""
        if not isinstance(event, ChatFinished):
            return False
        self._metrics.finished(event)
        return True


def refusal(error: EngineError) -> Response:
    """The answer that stands for an error."""
    status, body = error_answer(error)
    return JSONResponse(body, status)


async def _wait_until_gone(receive: Receive, gone: threading.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()
