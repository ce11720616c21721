"""The process that reads a vocabulary and makes texts into tokens; bad files abort llama.cpp."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from quant.running.llama import backend
from quant.study.vocabulary import Order
from veriloop_tui.engine.decoding.llama import silence_logs
from veriloop_tui.engine.decoding.native import api
from veriloop_tui.engine.orphan import die_with_parent


def _tokens(vocabulary: Any, text: bytes, *, add: bool, special: bool) -> list[int]:
    room = len(text) + 8
    buffer = (ctypes.c_int32 * room)()
    count = api.llama_tokenize(vocabulary, text, len(text), buffer, room, add, special)
    return buffer[: max(0, count)]


def main() -> int:
    """Do what the first argument orders; 0 if the vocabulary could be read."""
    die_with_parent()
    silence_logs()
    order = Order.from_json(sys.argv[1])
    api.llama_backend_init()
    params: Any = api.llama_model_default_params()
    params.vocab_only = True
    model = api.llama_model_load_from_file(os.fsencode(order.model), params)
    if not model:
        return 1
    vocabulary = api.llama_model_get_vocab(model)
    out = Path(order.out)
    count: int = api.llama_vocab_n_tokens(vocabulary)
    with (out / "vocabulary").open("w", encoding="ascii") as file:
        for token in range(count):
            text: bytes = api.llama_vocab_get_text(vocabulary, token) or b""
            attributes = api.llama_vocab_get_attr(vocabulary, token)
            unused = bool(attributes & api.LLAMA_TOKEN_ATTR_UNUSED)
            file.write(f"{int(unused)}{text.hex()}\n")
    for number, one in enumerate(order.texts):
        data = Path(one.path).read_bytes()
        for name, add in (("whole", True), ("plain", False)):
            found = _tokens(vocabulary, data, add=add, special=one.special)
            np.save(out / f"{name}-{number}.npy", np.array(found, np.int32))
    told = {
        "bos": api.llama_vocab_bos(vocabulary),
        "add_bos": bool(api.llama_vocab_get_add_bos(vocabulary)),
        "backend": backend(),
    }
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
