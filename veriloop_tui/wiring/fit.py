"""Whether a model fits this machine, before it is loaded or downloaded."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from veriloop_tui import registry
from veriloop_tui.config import NO_DRAFT
from veriloop_tui.engine.fit import probe as fit_probe
from veriloop_tui.engine.fit.plan import Fit, choose, largest_by_type, next_smaller
from veriloop_tui.engine.gguf.facts import check_draft, check_loadable, read_facts
from veriloop_tui.engine.settings import KVType, LoadSettings
from veriloop_tui.errors import DraftRefused, EngineStartFailed, ModelNotFound, UsageError
from veriloop_tui.wiring.inspect import Found, find
from veriloop_tui.wiring.loading import load_settings
from veriloop_tui.wiring.workspace import Flags, locate


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fit, the largest contexts by type of keys and values, and what was not as asked for."""

    fit: Fit
    contexts: tuple[tuple[KVType, int], ...]
    notices: tuple[str, ...]


def fit(ref: str, flags: Flags) -> Fitted:
    """How `ref` fits this machine, with its draft head and settings as a run would have them.

    Raises `UsageError`, `ModelNotFound`, `ModelFileInvalid`, `DownloadFailed`,
    `EngineStartFailed`.
    """
    settings = locate(Path(), replace(flags, model=ref)).settings
    model = find(ref)
    check_loadable(model.facts)
    notices: list[str] = []
    head = _head(ref, model, settings.draft, notices)
    wanted = load_settings(settings)
    devices = fit_probe.devices(wanted.devices)
    for name in set(wanted.devices) - {device.name for device in devices}:
        raise UsageError(f"llama.cpp has no device '{name}' here; `veriloop doctor` lists them.")
    chosen = choose(model.facts, head.facts if head else None, devices, wanted)
    try:
        chosen = _settled(chosen, model, head, wanted)
    except (EngineStartFailed, OSError) as problem:
        notices.append(f"llama.cpp gave no figures, so they are by formulas: {problem}")
    if chosen.on_gpu:
        notices.append("The figures for GPUs are estimates: they were never measured on one.")
    return Fitted(chosen, largest_by_type(chosen), tuple(notices))


def _head(ref: str, model: Found, draft: str, notices: list[str]) -> Found | None:
    """The draft head that is asked for, or the one on this disk that belongs to the model."""
    if draft == NO_DRAFT:
        return None
    head = find(draft, draft=True) if draft else _cached_head(ref, model)
    if head is None:
        return None
    try:
        check_draft(model.facts, head.facts)
    except DraftRefused as refused:
        notices.append(str(refused))
        return None
    return head


def _cached_head(ref: str, model: Found) -> Found | None:
    if model.there is not None:
        return None
    known = registry.read_registry(registry.registry_file())
    try:
        path = registry.draft_of(registry.resolve(ref, known), "", known)
    except ModelNotFound:
        return None
    return Found(read_facts(path), None) if path is not None else None


def _settled(chosen: Fit, model: Found, head: Found | None, wanted: LoadSettings) -> Fit:
    """The first plan from `chosen` on that fits by llama.cpp's own figures.

    A context or layers that were asked for are not changed any more.
    """
    with tempfile.TemporaryDirectory(prefix="veriloop-fit-") as folder:
        load = replace(
            wanted,
            model=_path(model, Path(folder) / "model"),
            draft=_path(head, Path(folder) / "head") if head else None,
        )
        found = fit_probe.confirmed(chosen, load)
        fixed = wanted.n_ctx is not None or wanted.gpu_layers is not None
        while chosen.fits and not found.fits and not fixed:
            smaller = next_smaller(found)
            if smaller is None:
                break
            smaller = replace(smaller, reasons=(*found.reasons, *smaller.reasons))
            found = fit_probe.confirmed(smaller, load)
        return found


def _path(found: Found, folder: Path) -> Path:
    if found.there is None:
        return Path(found.facts.path)
    folder.mkdir()
    return found.there.stand_in(folder)
