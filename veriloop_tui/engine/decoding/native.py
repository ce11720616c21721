"""llama.cpp's library, loaded once and with the settings that it reads at that moment.

Every module that calls it takes `api` or `ext` from here.
"""

from __future__ import annotations

import os
from typing import Final

# Threads that wait by spinning starve each other as soon as anything else wants a core; those
# that sleep at once lose as much on an idle one. SmolLM2 on two cores, tokens/s idle and beside
# one busy process: spinning 146 and 25, sleeping 48 and 60, some hundred spins and then sleep 143
# and 52.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "400")
# Otherwise an abort in native code starts a debugger to print a backtrace.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

import llama_cpp
import llama_cpp.llama_cpp as api
from llama_cpp import llama_cpp_ext as ext
from llama_cpp._ggml import libggml

__all__ = ["VERSION", "api", "ext", "libggml"]

VERSION: Final[str] = llama_cpp.__version__
