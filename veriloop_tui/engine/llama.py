"""The one place that touches llama.cpp's C interface: a loaded model, its vocabulary, its memory.

Only the engine's child process imports this module.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from veriloop_tui.core.chat import Sampling
from veriloop_tui.errors import EngineRefused, ModelFileInvalid

# Both are read when the native library is loaded, so they come before its import. Threads that
# spin while they wait starve each other as soon as anything else wants a core: with one busy
# process beside two threads, sleeping ones were 10 to 40 times faster.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Otherwise an abort in native code starts a debugger to print a backtrace.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

import llama_cpp.llama_cpp as api

# Tokens per llama_decode during prefill; also how often a GPU, which knows no abort, can stop.
N_BATCH: Final = 512
_PENALTY_WINDOW: Final = 64
_ABORTED: Final = 2
_LOG_WARN: Final = 3
_LOG_ERROR: Final = 4

Cancelled = Callable[[], bool]


class _Log:
    """llama.cpp's warnings and errors go to stderr; the rest is dropped.

    An abort that was asked for is reported as an error by llama.cpp, so it mutes the log.
    """

    def __init__(self) -> None:
        self.muted = False

    def __call__(self, level: int, text: bytes, _data: object) -> None:
        if level in (_LOG_WARN, _LOG_ERROR) and not self.muted:
            sys.stderr.write(text.decode("utf-8", "replace"))
            sys.stderr.flush()


_LOG: Final = _Log()
# Kept for the life of the process: llama.cpp holds the raw pointer.
_LOG_CALLBACK: Final = api.llama_log_callback(_LOG)


def silence_logs() -> None:
    """Take llama.cpp's log over; call it before anything is loaded."""
    api.llama_log_set(_LOG_CALLBACK, ctypes.c_void_p(0))


class Vocabulary:
    """Tokens and texts. Safe to use from any thread."""

    def __init__(self, model: Any) -> None:
        self._vocab: Any = api.llama_model_get_vocab(model)
        self.size: int = api.llama_vocab_n_tokens(self._vocab)
        self._bos: int = api.llama_vocab_bos(self._vocab)
        self.bos = self._text(self._bos)
        self.eos = self._text(api.llama_vocab_eos(self._vocab))
        self._add_bos = bool(api.llama_vocab_get_add_bos(self._vocab)) and self._bos >= 0
        self._buffer = ctypes.create_string_buffer(256)

    def tokenise(self, text: str) -> list[int]:
        """The tokens of a rendered prompt, special tokens parsed, the BOS where the model wants it.

        A template that writes the BOS itself gets no second one.
        """
        data = text.encode("utf-8", "replace")
        room = len(data) + 8
        tokens = (ctypes.c_int32 * room)()
        n = api.llama_tokenize(self._vocab, data, len(data), tokens, room, False, True)
        if n < 0:
            raise EngineRefused(500, "the prompt could not be tokenised")
        ids = list(tokens[:n])
        return [self._bos, *ids] if self._add_bos and ids[:1] != [self._bos] else ids

    def piece(self, token: int) -> bytes:
        """The bytes of one token; none for a control token. For one thread at a time."""
        n = api.llama_token_to_piece(self._vocab, token, self._buffer, len(self._buffer), 0, False)
        if n < 0:
            self._buffer = ctypes.create_string_buffer(-n)
            n = api.llama_token_to_piece(self._vocab, token, self._buffer, -n, 0, False)
        return self._buffer.raw[:n]

    def ends(self, token: int) -> bool:
        """Whether the token ends a generation."""
        return bool(api.llama_vocab_is_eog(self._vocab, token))

    def _text(self, token: int) -> str:
        if token < 0:
            return ""
        text: bytes | None = api.llama_vocab_get_text(self._vocab, token)
        return (text or b"").decode("utf-8", "replace")


class Sampler:
    """A chain of llama.cpp samplers; use as a context manager, it owns native memory."""

    def __init__(self, sampling: Sampling, seed: int, vocabulary_size: int) -> None:
        """`seed` of any size is folded to 32 bits; equal seeds give equal draws."""
        self._chain: Any = api.llama_sampler_chain_init(api.llama_sampler_chain_default_params())
        penalised = sampling.repeat_penalty != 1.0
        self.window = _PENALTY_WINDOW if penalised else 0
        if penalised:
            self._add(
                api.llama_sampler_init_penalties(
                    vocabulary_size, _PENALTY_WINDOW, sampling.repeat_penalty, 0.0, 0.0
                )
            )
        if sampling.temperature <= 0.0:
            self._add(api.llama_sampler_init_greedy())
            return
        if sampling.top_k > 0:
            self._add(api.llama_sampler_init_top_k(sampling.top_k))
        self._add(api.llama_sampler_init_top_p(sampling.top_p, 1))
        self._add(api.llama_sampler_init_min_p(sampling.min_p, 1))
        self._add(api.llama_sampler_init_temp(sampling.temperature))
        # 0xFFFFFFFF would mean "choose a seed yourself", so it is left out of the range.
        self._add(api.llama_sampler_init_dist(seed % 0xFFFF_FFFF))

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, *_exc: object) -> None:
        api.llama_sampler_free(self._chain)

    def accept(self, token: int) -> None:
        """Let the penalties know a token of the prompt."""
        api.llama_sampler_accept(self._chain, token)

    def sample(self, memory: Memory) -> int:
        """Draw the next token from the logits of the last token that `memory` evaluated.

        Raises `EngineRefused` if they are no numbers, which no sampler would notice.
        """
        token = int(api.llama_sampler_sample(self._chain, memory.context, -1))
        if math.isnan(api.llama_get_logits_ith(memory.context, -1)[token]):
            memory.clear()
            raise EngineRefused(500, "the model computes no numbers; its file may be damaged")
        return token

    def _add(self, sampler: Any) -> None:
        api.llama_sampler_chain_add(self._chain, sampler)


class Model:
    """Weights in memory. Close it last."""

    def __init__(self, path: Path, gpu_layers: int, keep_loading: Callable[[], bool]) -> None:
        """Load `path`, asking `keep_loading` now and then. Raises `ModelFileInvalid`."""
        api.llama_backend_init()
        params = api.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        progress = api.llama_progress_callback(lambda _done, _data: keep_loading())
        params.progress_callback = progress
        self.handle: Any = api.llama_model_load_from_file(bytes(path), params)
        if not self.handle:
            raise ModelFileInvalid(str(path), "llama.cpp could not load it; its log says why")
        if api.llama_model_has_encoder(self.handle) or api.llama_model_is_diffusion(self.handle):
            raise ModelFileInvalid(str(path), "it does not write text token by token")
        self.vocabulary = Vocabulary(self.handle)
        # Recurrent state is the sum of all tokens so far: it cannot be cut back to fewer.
        self.recurrent = bool(
            api.llama_model_is_recurrent(self.handle) or api.llama_model_is_hybrid(self.handle)
        )

    def close(self) -> None:
        """Give the memory back."""
        api.llama_model_free(self.handle)


class Memory:
    """A context of one sequence, with the tokens that were evaluated into it. For one thread."""

    def __init__(self, model: Model, path: Path, n_ctx: int, threads: int) -> None:
        """Make a context for `n_ctx` tokens. Raises `ModelFileInvalid` if llama.cpp refuses."""
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, N_BATCH, N_BATCH
        params.n_threads = params.n_threads_batch = threads
        # One row of logits, not one for each position of a batch.
        params.n_outputs_max = 1
        params.no_perf = True
        self.context: Any = api.llama_init_from_model(model.handle, params)
        if not self.context:
            problem = f"llama.cpp could not make a context of {n_ctx} tokens; its log says why"
            raise ModelFileInvalid(str(path), problem)
        self.n_ctx: int = api.llama_n_ctx(self.context)
        self._recurrent = model.recurrent
        self._memory: Any = api.llama_get_memory(self.context)
        if not self._memory:
            raise ModelFileInvalid(str(path), "it keeps no context, so it cannot write text")
        self._tokens: list[int] = []
        self._no_abort = api.ggml_abort_callback()

    @property
    def tokens(self) -> tuple[int, ...]:
        """What has been evaluated."""
        return tuple(self._tokens)

    def keep(self, prompt: Sequence[int]) -> int:
        """Cut the memory back to what it shares with `prompt`; returns how many tokens that is.

        At least the prompt's last token is left to evaluate, since its logits are needed. A
        recurrent memory can only be kept whole.
        """
        common = 0
        for mine, wanted in zip(self._tokens, prompt[:-1], strict=False):
            if mine != wanted:
                break
            common += 1
        if common == len(self._tokens):
            return common
        if self._recurrent or not api.llama_memory_seq_rm(self._memory, 0, common, -1):
            common = 0
        if common == 0:
            self.clear()
        del self._tokens[common:]
        return common

    def evaluate(self, tokens: Sequence[int], cancelled: Cancelled) -> bool:
        """Evaluate a prompt's tokens; False if cancelled.

        An abort in the middle of a batch empties the memory: the state may be wrong though its
        positions look right. Raises `EngineRefused` if llama.cpp cannot, which empties it as well.
        """

        def give_up(_data: object) -> bool:
            _LOG.muted = cancelled()
            return _LOG.muted

        abort = api.ggml_abort_callback(give_up)
        api.llama_set_abort_callback(self.context, abort, None)
        try:
            for start in range(0, len(tokens), N_BATCH):
                if cancelled():
                    return False
                if not self._decode(tokens[start : start + N_BATCH]):
                    self.clear()
                    return False
        finally:
            _LOG.muted = False
            # The callback costs a call into Python per graph node, too much for single tokens.
            api.llama_set_abort_callback(self.context, self._no_abort, None)
        return True

    def advance(self, token: int) -> None:
        """Evaluate one token that was sampled. Raises `EngineRefused`."""
        self._decode((token,))

    def clear(self) -> None:
        """Forget everything."""
        api.llama_memory_clear(self._memory, True)
        self._tokens.clear()

    def close(self) -> None:
        """Give the context's memory back."""
        api.llama_free(self.context)

    def _decode(self, tokens: Sequence[int]) -> bool:
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        code = api.llama_decode(self.context, api.llama_batch_get_one(array, len(tokens)))
        if code == _ABORTED:
            return False
        if code != 0:
            self.clear()
            raise EngineRefused(500, f"llama.cpp could not evaluate the tokens (code {code})")
        self._tokens.extend(tokens)
        return True
