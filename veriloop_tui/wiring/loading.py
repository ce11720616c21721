"""From the user's settings to how the engine loads a model."""

from __future__ import annotations

from pathlib import Path

from veriloop_tui.config import Settings
from veriloop_tui.engine.settings import LoadSettings


def load_settings(settings: Settings) -> LoadSettings:
    """How to load a model by the user's settings; its files are still to be put in."""
    return LoadSettings(
        Path(),
        n_ctx=settings.n_ctx,
        threads=settings.threads,
        gpu_layers=settings.gpu_layers,
        draft_max=settings.draft_max,
        speculation=settings.speculation,
        lookup=settings.lookup,
        parallel=settings.parallel,
        type_k=settings.type_k,
        type_v=settings.type_v,
        flash_attention=settings.flash_attention,
        devices=settings.devices,
        split_mode=settings.split_mode,
        tensor_split=settings.tensor_split,
    )
