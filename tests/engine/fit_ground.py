"""A model really loaded, as the engine does it, and the bytes that llama.cpp says it allocated."""

import ctypes
import re
from pathlib import Path

from veriloop_tui.engine.decoding.batch import N_BATCH
from veriloop_tui.engine.decoding.head import Head
from veriloop_tui.engine.decoding.llama import Model, silence_logs
from veriloop_tui.engine.decoding.memory import Memory, Shape
from veriloop_tui.engine.decoding.native import api
from veriloop_tui.engine.fit.memory import Plan
from veriloop_tui.engine.settings import LoadSettings

_WEIGHTS = re.compile(r"model buffer size = +([\d.]+) MiB")
_CONTEXT = re.compile(r"(?:KV|RS) buffer size = +([\d.]+) MiB")
_COMPUTE = re.compile(r"(?:compute|output) buffer size = +([\d.]+) MiB")


def allocated(path: Path, plan: Plan, draft: Path | None, own_head: bool) -> dict[str, float]:
    """Bytes of weights, of context and of room to compute in."""
    lines: list[str] = []

    def listen(_level: int, text: bytes, _data: object) -> None:
        lines.append(text.decode("utf-8", "replace"))

    callback = api.llama_log_callback(listen)
    api.llama_log_set(callback, ctypes.c_void_p(0))
    settings = LoadSettings(
        path,
        type_k=plan.type_k,
        type_v=plan.type_v,
        flash_attention="auto" if plan.flash else "off",
    )
    shape = Shape(plan.n_ctx, 1, plan.sequences, plan.rollback)
    try:
        model = Model(path, settings, lambda: True, heads=own_head)
        memory = Memory(model, settings, shape)
        head_model = Model(draft, settings, lambda: True, heads=True) if draft else model
        if draft or own_head:
            head = Head("qwen35", head_model, memory, settings, shape)
            head.close()
        memory.close()
        for one in {model, head_model}:
            one.close()
    finally:
        silence_logs()
    text = "".join(lines)
    found = {
        what: sum(float(size) for size in form.findall(text)) * 2**20
        for what, form in (("weights", _WEIGHTS), ("context", _CONTEXT), ("compute", _COMPUTE))
    }
    if draft or own_head:
        # Hidden rows of model and head: made room for, without a word, when they are first needed.
        found["compute"] += 2 * 4 * N_BATCH * model.width
    return found
