"""Asks llama.cpp which devices there are, and what it would reserve for a model.

Only the engine's child process and `fit_probe`'s import this module. For a plan llama.cpp goes
through everything that it does at a load except for reading weights and keeping a context, so a
file of the right length whose weights were never downloaded will do.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from veriloop_tui.engine.decoding.llama import SPLIT_MODES, place_on_devices, silence_logs
from veriloop_tui.engine.decoding.memory import Shape, context_params
from veriloop_tui.engine.decoding.native import api, libggml
from veriloop_tui.engine.fit.host import host_device
from veriloop_tui.engine.fit.memory import Device, DeviceKind, Plan
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import EngineError, ModelFileInvalid

_KINDS: Final[dict[int, DeviceKind]] = {1: "gpu", 2: "igpu"}  # ggml_backend_dev_type
_COMPUTE: Final = re.compile(r"(\S+) +(?:compute|output) buffer size = +([\d.]+) MiB")
_CONTEXT: Final = re.compile(r"(?:kv_cache|recurrent): size = +([\d.]+) MiB")


def devices(wanted: tuple[str, ...] = ()) -> tuple[Device, ...]:
    """The machine's memory, then each GPU that llama.cpp has, or those that are `wanted`."""
    found = [host_device()]
    for name in ("count", "get", "name", "description", "type", "memory"):
        _declare(name)
    for at in range(libggml.ggml_backend_dev_count()):
        device = libggml.ggml_backend_dev_get(at)
        kind = _KINDS.get(libggml.ggml_backend_dev_type(device))
        name = libggml.ggml_backend_dev_name(device).decode("utf-8", "replace")
        if kind is None or (wanted and name not in wanted):
            continue
        about = libggml.ggml_backend_dev_description(device).decode("utf-8", "replace")
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        libggml.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
        found.append(Device(name, about, kind, free.value, total.value))
    return tuple(found)


def reserve(settings: LoadSettings, plan: Plan, own_head: bool) -> dict[str, Any]:
    """What llama.cpp would reserve, in bytes: `compute` by its names of buffers, and `context`.

    Raises `ModelFileInvalid`.
    """
    lines: list[str] = []

    def listen(_level: int, text: bytes, _data: object) -> None:
        lines.append(text.decode("utf-8", "replace"))

    callback = api.llama_log_callback(listen)
    api.llama_log_set(callback, ctypes.c_void_p(0))
    try:
        model = _unloaded(settings.model, settings, own_head)
        _pass_through(model, settings, Shape(plan.n_ctx, 1, plan.sequences, plan.rollback))
        head = _unloaded(settings.draft, settings, True) if settings.draft is not None else model
        if plan.speculates and (own_head or settings.draft is not None):
            _pass_through(head, settings, Shape(plan.n_ctx, 1), head=True)
    finally:
        silence_logs()
    compute: dict[str, int] = {}
    for line in lines:
        if found := _COMPUTE.search(line):
            compute[found[1]] = compute.get(found[1], 0) + _bytes(found[2])
    context = sum(_bytes(found[1]) for line in lines if (found := _CONTEXT.search(line)))
    return {"compute": compute, "context": context}


def main() -> int:
    """Answer one question: JSON from standard input, JSON to standard output."""
    silence_logs()
    asked = json.loads(sys.stdin.read())
    answer: dict[str, Any] = {}
    if asked["load"] is None:
        answer["devices"] = [asdict(one) for one in devices(tuple(asked["devices"]))]
    else:
        plan = Plan(**{**asked["plan"], "shares": tuple(asked["plan"]["shares"])})
        try:
            answer = reserve(LoadSettings.from_json(asked["load"]), plan, asked["own_head"])
        except EngineError as problem:
            answer["problem"] = str(problem)
    sys.stdout.write(json.dumps(answer))
    return 0


def _unloaded(path: Path, settings: LoadSettings, heads: bool) -> Any:
    """A model without weights."""
    api.llama_backend_init()
    params = api.llama_model_default_params()
    params.n_gpu_layers = -1 if settings.gpu_layers is None else settings.gpu_layers
    params.split_mode = SPLIT_MODES[settings.split_mode]
    params.load_mtp = heads
    kept = place_on_devices(params, settings)
    params.no_alloc = True
    params.load_mode = api.LLAMA_LOAD_MODE_NONE
    model = api.llama_model_load_from_file(bytes(path), params)
    del kept
    if not model:
        raise ModelFileInvalid(str(path), "llama.cpp refuses it")
    return model


def _pass_through(model: Any, settings: LoadSettings, shape: Shape, *, head: bool = False) -> None:
    """Make a context, and let it go at once."""
    params = context_params(settings, shape)
    if head:
        params.ctx_type = api.LLAMA_CONTEXT_TYPE_MTP
        params.n_outputs_max = 1
    context = api.llama_init_from_model(model, params)
    if not context:
        raise ModelFileInvalid("the model", "llama.cpp makes no context of this size")
    api.llama_free(context)


def _declare(name: str) -> None:
    function = getattr(libggml, f"ggml_backend_dev_{name}")
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    sizes = ctypes.POINTER(ctypes.c_size_t)
    function.restype, function.argtypes = {
        "count": (ctypes.c_size_t, []),
        "get": (pointer, [ctypes.c_size_t]),
        "name": (text, [pointer]),
        "description": (text, [pointer]),
        "type": (ctypes.c_int, [pointer]),
        "memory": (None, [pointer, sizes, sizes]),
    }[name]


def _bytes(mebibytes: str) -> int:
    return round(float(mebibytes) * 2**20)
