"""Weights, context, draft head and pace put together by a plan, or less where memory runs out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import psutil

from veriloop_tui.engine.decoding.decode import Decoder
from veriloop_tui.engine.decoding.head import Head, check_head
from veriloop_tui.engine.decoding.llama import Model
from veriloop_tui.engine.decoding.memory import Memory, Shape
from veriloop_tui.engine.decoding.pace import CostCurve, Pace
from veriloop_tui.engine.fit.plan import Fit, choose, loaded_by, next_smaller
from veriloop_tui.engine.fit.reserve import devices
from veriloop_tui.engine.gguf.facts import GGUFFacts, check_draft, read_facts
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import DraftRefused, EngineError, ModelFileInvalid

_CALIBRATION_SECONDS: Final = 1.0
_CALIBRATED: Final = (1, 2, 3, 5, 9, 17)
_PARALLEL: Final = 8

Keep = Callable[[], bool]


@dataclass(slots=True)
class Parts:
    """What a loaded model consists of. Close it when it is not needed any more."""

    model: Model
    decoder: Decoder
    head_model: Model | None = None
    draft: GGUFFacts | None = None
    notices: list[str] = field(default_factory=list)

    def drop_head(self) -> None:
        """Give the draft head back, if there is one."""
        if self.decoder.head is not None:
            self.decoder.head.close()
            self.decoder.head = None
            self.decoder.memory.emit_hidden(False)
        if self.head_model is not None:
            self.head_model.close()
            self.head_model = None

    def close(self) -> None:
        """Free the native memory."""
        self.decoder.close()
        if self.head_model is not None:
            self.head_model.close()
        self.model.close()


def assemble(header: GGUFFacts, wanted: LoadSettings, keep_loading: Keep) -> Parts:
    """Load what fits; where memory runs out all the same, less of it, step by step.

    Raises `ModelFileInvalid`, `EngineRefused`.
    """
    notices: list[str] = []
    draft = _draft_facts(header, wanted, notices)
    settings = wanted if draft is not None else replace(wanted, draft=None)
    fit = choose(header, draft, devices(wanted.devices), settings)
    notices += fit.reasons
    for _ in range(wanted.smaller):
        fit = _next(fit, notices) or fit
    while True:
        try:
            parts = _load(header, loaded_by(fit, settings), keep_loading)
        except ModelFileInvalid:
            # llama.cpp does not say why, and want of memory is what can be helped.
            smaller = _next(fit, notices) if keep_loading() else None
            if smaller is None:
                raise
            fit = smaller
        else:
            parts.draft = draft
            parts.notices[:0] = notices
            return parts


def _next(fit: Fit, notices: list[str]) -> Fit | None:
    smaller = next_smaller(fit)
    if smaller is not None:
        notices += smaller.reasons[:1]
    return smaller


def _draft_facts(header: GGUFFacts, settings: LoadSettings, notices: list[str]) -> GGUFFacts | None:
    """The header of the draft head, `None` where there is none or it is refused."""
    if settings.draft is None or settings.speculation == "off":
        return None
    try:
        found = read_facts(settings.draft)
        check_draft(header, found)
    except DraftRefused as refused:
        notices.append(str(refused))
    except EngineError as problem:
        notices.append(str(DraftRefused(str(problem).rstrip("."))))
    else:
        return found
    return None


def _load(header: GGUFFacts, settings: LoadSettings, keep_loading: Keep) -> Parts:
    own_heads = (
        header.nextn_predict_layers > 0 and settings.draft is None and settings.speculation != "off"
    )
    with ExitStack() as undo:
        # llama.cpp finds the other shards from the first one only.
        model = Model(Path(header.path), settings, keep_loading, heads=own_heads)
        undo.callback(model.close)
        parts = _parts(header, settings, model, keep_loading)
        undo.pop_all()
    return parts


def _parts(header: GGUFFacts, settings: LoadSettings, model: Model, keep_loading: Keep) -> Parts:
    shape = _shape(settings, model)
    memory = Memory(model, settings, shape)
    parts = Parts(model, Decoder(memory, model.vocabulary, lookup=settings.lookup))
    with ExitStack() as undo:
        undo.callback(parts.decoder.close)
        if settings.speculation != "off":
            _speculate(parts, header, settings, shape, keep_loading)
        undo.pop_all()
    return parts


def _speculate(
    parts: Parts, header: GGUFFacts, settings: LoadSettings, shape: Shape, keep_loading: Keep
) -> None:
    """Give the decoder a head and a pace, or say why it decodes plainly."""
    decoder, model = parts.decoder, parts.model
    try:
        _add_head(parts, header, settings, shape, keep_loading)
    except DraftRefused as refused:
        parts.notices.append(str(refused))
    if decoder.head is None and not settings.lookup:
        return
    try:
        decoder.pace = pace_for(settings, decoder)
    except SpeculationOff as off:
        parts.notices.append(str(off))
        parts.drop_head()
        if model.recurrent and settings.parallel is None:
            # The states to take tokens back can hold candidates instead.
            decoder.memory.close()
            plain = _shape(replace(settings, speculation="off"), model)
            decoder.memory = Memory(model, settings, plain)


def _shape(settings: LoadSettings, model: Model) -> Shape:
    drafts = settings.speculation != "off"
    assert settings.n_ctx is not None
    return Shape(
        n_ctx=settings.n_ctx,
        threads=settings.threads or usable_cores(),
        sequences=settings.parallel or (1 if model.recurrent and drafts else _PARALLEL),
        rollback=settings.draft_max if drafts else 0,
    )


def _add_head(
    parts: Parts, header: GGUFFacts, settings: LoadSettings, shape: Shape, keep_loading: Keep
) -> None:
    """Give the decoder its draft head, if there is one. Raises `DraftRefused`."""
    model, source = parts.model, parts.model
    with ExitStack() as undo:
        if settings.draft is not None:
            try:
                source = Model(settings.draft, settings, keep_loading, heads=True)
            except EngineError as problem:
                raise DraftRefused(str(problem).rstrip(".")) from problem
            undo.callback(source.close)
        elif not source.draft_layers:
            return
        check_head(header.architecture, model, source)
        parts.decoder.head = Head(
            header.architecture, source, parts.decoder.memory, settings, shape
        )
        undo.pop_all()
    if source is not model:
        parts.head_model = source


class SpeculationOff(Exception):
    """Nothing can be drafted to any gain; the text says why."""


def pace_for(settings: LoadSettings, decoder: Decoder) -> Pace:
    """The pace for what the decoder can draft from. Raises `SpeculationOff`."""
    longest = min(settings.draft_max, decoder.memory.rollback)
    if longest < 1:
        raise SpeculationOff(
            "Speculation is off: llama.cpp cannot take back tokens with this architecture."
        )
    if decoder.head is not None and decoder.head.longest is not None and not settings.lookup:
        longest = min(longest, decoder.head.longest)
    if settings.speculation == "always":
        return Pace(CostCurve(), longest, fixed=True)
    pace = Pace(CostCurve(calibrate(decoder.memory, longest + 1)), longest)
    if pace.hopeless():
        times = pace.cost.at(longest + 1) / pace.cost.at(1)
        raise SpeculationOff(
            f"Speculation is off: a batch of {longest + 1} tokens takes {times:.1f} times as long "
            "as one token here, so drafting cannot pay."
        )
    return pace


def calibrate(
    memory: Memory, most: int, clock: Callable[[], float] = time.perf_counter
) -> list[tuple[int, float]]:
    """Milliseconds that batches of up to `most` tokens take, in about a second at most.

    The memory is empty before and after.
    """
    begun, measured = clock(), []
    sizes = [size for size in _CALIBRATED if size < most] + [most]
    memory.advance((0,))  # The first evaluation makes the graph.
    for size in sizes:
        times: list[float] = []
        for _ in range(3):
            if times and clock() - begun > _CALIBRATION_SECONDS:
                break
            before = clock()
            memory.advance((0,) * size)
            memory.logits(size - 1)[0]
            times.append((clock() - before) * 1e3)
        measured.append((size, min(times)))
        if clock() - begun > _CALIBRATION_SECONDS:
            break
    memory.clear()
    return measured


def usable_cores() -> int:
    """Physical cores, but no more than this process may run on (a container may have fewer)."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(psutil.cpu_count(logical=False) or 1, allowed or 1)
