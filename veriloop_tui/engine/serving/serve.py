"""The engine's process: an OpenAI-compatible server on a Unix socket or a TCP port.

Run as `python -m veriloop_tui.engine.serving.serve --load JSON --socket PATH`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import uvicorn

from veriloop_tui.engine.model.worker import Worker
from veriloop_tui.engine.orphan import die_with_parent
from veriloop_tui.engine.serving.listen import KEY_VARIABLE, ServeSettings, listen, where
from veriloop_tui.engine.serving.routes import application
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import EngineError, UsageError

__all__ = ["ServeSettings", "run"]

# Beyond it, connections are turned away at once.
_MAX_CONNECTIONS: Final = 256


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
        limit_concurrency=_MAX_CONNECTIONS,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    loading = asyncio.create_task(worker.load())
    await asyncio.wait((serving, loading), return_when=asyncio.FIRST_COMPLETED)
    failure = loading.exception() if loading.done() else None
    if failure is not None:
        server.should_exit = True
    elif worker.loaded is not None:
        for notice in worker.loaded.facts.notices:
            _say(notice)
        _say(f"Serving {settings.load.model.name} on {where(settings, listener)}")
    await serving
    await asyncio.to_thread(worker.stop)
    await asyncio.wait((loading,))
    if failure is not None:
        raise failure


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


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
    key = os.environ.get(KEY_VARIABLE, "")
    try:
        run(ServeSettings(given.load, given.socket, given.host, given.port, key))
    except (UsageError, EngineError) as error:
        _say(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
