"""The engine served by itself, in this process."""

from __future__ import annotations

from pathlib import Path

from veriloop_tui.engine.gguf.facts import check_loadable, read_facts
from veriloop_tui.engine.serving.serve import ServeSettings, run
from veriloop_tui.engine.settings import LoadSettings


def serve(load: LoadSettings, socket: Path | None, host: str, port: int, api_key: str) -> None:
    """Serve until a signal. Raises `UsageError`, `ModelFileInvalid`, `EngineError`."""
    check_loadable(read_facts(load.model))
    run(ServeSettings(load, socket, host, port, api_key))
