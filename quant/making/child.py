"""The process that makes one quant. Only here and in the other workers llama.cpp is loaded.

llama.cpp can neither be asked how far it is nor be told to stop, so it works in a process of its
own: its log becomes steps on standard output, and ending the process ends the work.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, TextIO

from quant.making.imatrix import Imatrix, read_imatrix
from quant.making.log import ERROR, Failed, LogReader, to_line
from quant.making.target import Order, tensor_type_number
from veriloop_tui.engine.orphan import die_with_parent
from veriloop_tui.errors import ImatrixInvalid

# Otherwise an abort in native code starts a debugger to print a backtrace. Read at the import.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

import llama_cpp.llama_cpp as api

_TEXT_BYTES = 127


def quantise(order: Order, out: TextIO) -> bool:
    """Run llama.cpp, write its steps to `out`; whether it succeeded. Raises `ImatrixInvalid`."""
    reader = LogReader()

    def log(level: int, text: bytes, _data: object) -> None:
        words = text.decode("utf-8", "replace")
        for step in reader.feed(words):
            print(to_line(step), file=out, flush=True)
        if level == ERROR:
            sys.stderr.write(words)

    callback = api.llama_log_callback(log)
    api.llama_log_set(callback, ctypes.c_void_p(0))
    params, kept = _params(order)
    code: int = api.llama_model_quantize(
        os.fsencode(order.base), os.fsencode(order.output), ctypes.byref(params)
    )
    # The structures must live as long as the call, and the reader's last line must be read.
    del kept
    log(0, b"\n", None)
    return code == 0


def _params(order: Order) -> tuple[Any, list[object]]:
    """llama.cpp's parameters, and what they point to."""
    recipe = order.recipe
    params: Any = api.llama_model_quantize_default_params()
    params.nthread = recipe.threads
    params.ftype = order.number
    params.allow_requantize = recipe.requantise
    params.pure = recipe.pure
    params.dry_run = order.dry_run
    params.max_buf_size = order.buffer
    if recipe.output_type:
        params.output_tensor_type = tensor_type_number(recipe.output_type)
    if recipe.embedding_type:
        params.token_embedding_type = tensor_type_number(recipe.embedding_type)
    kept: list[object] = []
    if recipe.overrides:
        overrides = (api.llama_model_tensor_override * (len(recipe.overrides) + 1))()
        for slot, override in zip(overrides, recipe.overrides, strict=False):
            slot.pattern, slot.type = override.pattern.encode(), override.number
        params.tt_overrides = overrides
        kept.append(overrides)
    if recipe.imatrix is not None:
        imatrix = read_imatrix(recipe.imatrix)
        entries, told = _entries(imatrix), _told(imatrix, recipe.imatrix.name)
        params.imatrix, params.kv_overrides = entries, told
        kept += [imatrix, entries, told]
    return params, kept


def _entries(imatrix: Imatrix) -> Any:
    entries = (api.llama_model_imatrix_data * (len(imatrix.weights) + 1))()
    for slot, (name, values) in zip(entries, imatrix.weights.items(), strict=False):
        slot.name, slot.size = name.encode(), values.size
        slot.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    return entries


def _told(imatrix: Imatrix, name: str) -> Any:
    """The metadata by which llama-quantize tells of the matrix; of its file only the name."""
    facts: list[tuple[str, str | int]] = [("file", name)]
    facts += [("dataset", one) for one in imatrix.datasets[:1]]
    facts.append(("entries_count", len(imatrix.weights)))
    facts += [("chunks_count", imatrix.chunks)] if imatrix.chunks > 0 else []
    told = (api.llama_model_kv_override * (len(facts) + 1))()
    for slot, (key, value) in zip(told, facts, strict=False):
        slot.key = f"quantize.imatrix.{key}".encode()
        if isinstance(value, int):
            slot.tag, slot.value.val_i64 = api.LLAMA_KV_OVERRIDE_TYPE_INT, value
        else:
            slot.tag = api.LLAMA_KV_OVERRIDE_TYPE_STR
            slot.value.val_str = value.encode()[:_TEXT_BYTES].decode("utf-8", "ignore").encode()
    return told


def main() -> int:
    """Make what the first argument orders; 0 if it was made."""
    die_with_parent()
    # Whatever native code prints must not come between the steps.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        try:
            return 0 if quantise(Order.from_json(sys.argv[1]), out) else 1
        except ImatrixInvalid as problem:
            print(to_line(Failed(problem.problem)), file=out, flush=True)
            return 1


if __name__ == "__main__":
    sys.exit(main())
