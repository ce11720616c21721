"""The process that reads a vocabulary's special tokens: bad files may abort llama.cpp."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

from veriloop_tui.engine.orphan import die_with_parent

# Otherwise an abort in native code starts a debugger to print a backtrace. Read at the import.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

import llama_cpp.llama_cpp as api

_WARN, _ERROR = 2, 3


def _log(level: int, text: bytes, _data: object) -> None:
    if level in (_WARN, _ERROR):
        sys.stderr.write(text.decode("utf-8", "replace"))


_LOG = api.llama_log_callback(_log)


def main() -> int:
    """Write the special tokens of the model that the first argument names, as JSON; 0 if it can."""
    die_with_parent()
    api.llama_log_set(_LOG, ctypes.c_void_p(0))
    params: Any = api.llama_model_default_params()
    params.vocab_only = True
    model = api.llama_model_load_from_file(os.fsencode(sys.argv[1]), params)
    if not model:
        return 1
    vocabulary = api.llama_model_get_vocab(model)

    def text(token: int) -> str:
        # Not every vocabulary has both.
        return api.llama_vocab_get_text(vocabulary, token).decode("utf-8") if token >= 0 else ""

    found = {
        "bos": text(api.llama_vocab_bos(vocabulary)),
        "eos": text(api.llama_vocab_eos(vocabulary)),
        "add_bos": bool(api.llama_vocab_get_add_bos(vocabulary)),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
