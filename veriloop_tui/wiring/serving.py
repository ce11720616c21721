"""The engine served by itself, in this process."""

from __future__ import annotations

from pathlib import Path

from veriloop_tui.engine.gguf_facts import check_loadable, read_facts
from veriloop_tui.engine.process import EngineSettings
from veriloop_tui.engine.serve import ServeSettings, run
from veriloop_tui.engine.worker import LoadSettings


def serve(
    settings: EngineSettings, socket: Path | None, host: str, port: int, api_key: str
) -> None:
    """Serve until a signal. Raises `UsageError`, `ModelFileInvalid`, `EngineError`."""
    check_loadable(read_facts(settings.model))
    load = LoadSettings(settings.model, settings.n_ctx, settings.threads, settings.gpu_layers)
    run(ServeSettings(load, socket, host, port, api_key))
