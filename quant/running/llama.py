"""llama.cpp as the process of a model uses it: weights, and contexts to decode steps in."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any, Final

import numpy as np

from quant.losses.statistics import Values
from quant.running.order import Context, Run
from veriloop_tui.engine.decoding.native import VERSION, api, libggml

_FLASH: Final = {
    "auto": api.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": api.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": api.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}
_TYPES: Final = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "bf16": 30,
}


class DecodeFailed(Exception):
    """llama.cpp did not decode a batch, or made no context."""


def load(path: str, gpu_layers: int) -> Any:
    """The weights; a null pointer if llama.cpp refuses them."""
    api.llama_backend_init()
    params: Any = api.llama_model_default_params()
    params.n_gpu_layers = gpu_layers
    return api.llama_model_load_from_file(os.fsencode(path), params)


def backend() -> dict[str, Any]:
    """What llama.cpp runs on: its devices, its words on the machine, whether it can use a GPU."""
    libggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    libggml.ggml_backend_dev_get.restype = ctypes.c_void_p
    libggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    libggml.ggml_backend_dev_name.restype = ctypes.c_char_p
    libggml.ggml_backend_dev_name.argtypes = [ctypes.c_void_p]
    devices = [
        libggml.ggml_backend_dev_name(libggml.ggml_backend_dev_get(at)).decode()
        for at in range(libggml.ggml_backend_dev_count())
    ]
    return {
        "devices": devices,
        "system": api.llama_print_system_info().decode().strip(),
        "gpu": bool(api.llama_supports_gpu_offload()),
        "build": VERSION,
    }


def vocabulary_size(model: Any) -> int:
    """How many tokens a model knows."""
    return int(api.llama_vocab_n_tokens(api.llama_model_get_vocab(model)))


class Stream:
    """A context with a batch that fits it; for one thread."""

    def __init__(self, model: Any, settings: Context, vocabulary: int) -> None:
        """`vocabulary` is the model's own. Raises `DecodeFailed`."""
        params: Any = api.llama_context_default_params()
        params.n_ctx = settings.sequences * settings.n_ctx
        params.n_batch = params.n_ubatch = settings.n_ubatch
        params.n_seq_max = settings.sequences
        params.n_outputs_max = max(1, settings.outputs)
        params.n_threads = params.n_threads_batch = settings.threads
        params.type_k, params.type_v = _TYPES[settings.type_k], _TYPES[settings.type_v]
        params.flash_attn_type = _FLASH[settings.flash_attention]
        params.no_perf = True
        self._context: Any = api.llama_init_from_model(model, params)
        if not self._context:
            raise DecodeFailed("llama.cpp made no context with these settings")
        self._batch: Any = api.llama_batch_init(settings.n_ubatch, 0, 1)
        self._vocabulary = vocabulary

    def decode(self, run: Run) -> Values:
        """The logits of one step, good until the next one. Raises `DecodeFailed`."""
        if run.clear:
            api.llama_memory_clear(api.llama_get_memory(self._context), True)
        api.llama_set_n_threads(self._context, run.threads, run.threads)
        self._fill(run)
        code = api.llama_decode(self._context, self._batch)
        if code != 0:
            raise DecodeFailed(f"llama_decode ended with {code}")
        api.llama_synchronize(self._context)
        count = run.outputs * len(run.tokens)
        if not count:
            return np.empty((0, self._vocabulary), np.float32)
        # Contiguous, in the order of the batch.
        found: Values = np.ctypeslib.as_array(
            api.llama_get_logits(self._context), (count, self._vocabulary)
        )
        return found

    def _fill(self, run: Run) -> None:
        batch, at = self._batch, 0
        for sequence, tokens in enumerate(run.tokens):
            silent = len(tokens) - run.outputs
            for place, token in enumerate(tokens):
                batch.token[at], batch.pos[at] = token, run.start + place
                batch.n_seq_id[at], batch.seq_id[at][0] = 1, sequence
                batch.logits[at] = place >= silent
                at += 1
        batch.n_tokens = at

    def time(self, start: int, count: int) -> float:
        """Seconds for decoding `count` made-up tokens at `start`. Raises `DecodeFailed`."""
        tokens = [1 + at % 7 for at in range(start, start + count)]
        run = Run(0, start == 0, start, [tokens], 1, [], "score", 0, self.threads)
        before = time.perf_counter()
        self.decode(run)
        return time.perf_counter() - before

    @property
    def threads(self) -> int:
        """The threads that it was made with."""
        return int(api.llama_n_threads(self._context))

    def close(self) -> None:
        """Give the memory back."""
        api.llama_batch_free(self._batch)
        api.llama_free(self._context)


def speeds(
    stream: Stream, prompt: int, generated: int, repeats: int, n_ubatch: int
) -> tuple[list[float], list[float]]:
    """Tokens per second of reading a prompt and of writing, each so many times, after a trial."""
    stream.time(0, min(prompt, n_ubatch))
    read, written = [], []
    for _ in range(repeats):
        pieces = [
            stream.time(start, min(n_ubatch, prompt - start))
            for start in range(0, prompt, n_ubatch)
        ]
        read.append(prompt / sum(pieces))
        written.append(generated / sum(stream.time(prompt + at, 1) for at in range(generated)))
    return read, written
