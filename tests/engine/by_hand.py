"""A speculative loop written out against llama.cpp's low-level calls, apart from the program's own.

It pins what the program relies on: which calls a draft head takes, in which order, and that rolling
back and guessing change nothing. Greedy only, one sequence, flash attention off and F32 KV.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veriloop_tui.engine.decoding.native import api, ext

N_CTX = 1024
Rows = NDArray[np.float32]


@dataclass
class Said:
    """What a run said, and what became of its guesses."""

    tokens: list[int]
    drafted: int = 0
    accepted: int = 0


class Native:
    """A model with one context, and a batch that takes hidden rows beside tokens if asked to."""

    def __init__(self, path: Path, *, heads: bool, draft: bool, rollback: int) -> None:
        model_params = api.llama_model_default_params()
        model_params.load_mtp = heads
        self.model: Any = api.llama_model_load_from_file(bytes(path), model_params)
        assert self.model
        params = api.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = N_CTX
        params.n_threads = params.n_threads_batch = 1
        params.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.type_k = params.type_v = api.GGML_TYPE_F32
        params.n_rs_seq = rollback
        if draft:
            params.ctx_type = api.LLAMA_CONTEXT_TYPE_MTP
        self.context: Any = api.llama_init_from_model(self.model, params)
        assert self.context
        self.memory: Any = api.llama_get_memory(self.context)
        self.width: int = api.llama_model_n_embd_out(self.model)
        self.layers: int = api.llama_model_n_layer_nextn(self.model)
        vocabulary: Any = api.llama_model_get_vocab(self.model)
        self.vocabulary_size: int = api.llama_vocab_n_tokens(vocabulary)
        self._batch: Any = api.llama_batch_init(N_CTX, self.width if draft else 0, 1)
        self._ids = (ctypes.c_int32 * N_CTX)()
        self._draft = draft
        if draft:
            self._batch.token = ctypes.cast(self._ids, ctypes.POINTER(ctypes.c_int32))

    def evaluate(
        self, tokens: Sequence[int], start: int, rows: Rows | None = None, layer: int = 0
    ) -> Rows:
        """Logits [tokens, vocabulary] of tokens from position `start` on."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.logits[i] = token, start + i, 1
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
        if rows is not None:
            rows = np.ascontiguousarray(rows, np.float32)
            assert rows.shape == (len(tokens), self.width)
            ctypes.memmove(batch.embd, rows.ctypes.data, rows.nbytes)
        if self.layers > 1 and self._draft:
            ext.llama_set_nextn_layer_offset(self.context, layer)
        assert api.llama_decode(self.context, batch) == 0
        return self._floats(api.llama_get_logits(self.context), len(tokens), self.vocabulary_size)

    def hidden(self, count: int) -> Rows:
        """Hidden rows [count, width] of the last evaluation."""
        return self._floats(ext.llama_get_embeddings_nextn(self.context), count, self.width)

    def cut(self, position: int) -> bool:
        """Forget all from `position` on."""
        return bool(api.llama_memory_seq_rm(self.memory, 0, position, -1))

    def close(self) -> None:
        if self._draft:
            self._batch.token = ctypes.POINTER(ctypes.c_int32)()  # Python's, not llama.cpp's
        api.llama_batch_free(self._batch)
        api.llama_free(self.context)
        api.llama_model_free(self.model)

    @staticmethod
    def _floats(pointer: Any, rows: int, width: int) -> Rows:
        return np.ctypeslib.as_array(pointer, (rows * width,)).reshape(rows, width).copy()


def plain(target: Path, prompt: Sequence[int], count: int) -> Said:
    """Greedy decoding, a token at a time."""
    native = Native(target, heads=False, draft=False, rollback=0)
    token = int(native.evaluate(prompt, 0)[-1].argmax())
    said = [token]
    while len(said) < count:
        token = int(native.evaluate([token], len(prompt) + len(said) - 1)[0].argmax())
        said.append(token)
    native.close()
    return Said(said)


def speculative(target: Path, head: Path, prompt: Sequence[int], count: int, k: int) -> Said:
    """Greedy decoding with `k` tokens drafted by a head for each evaluation of the target."""
    main = Native(target, heads=False, draft=False, rollback=k)
    ext.llama_set_embeddings_nextn(main.context, True, False)
    guess = Native(head, heads=True, draft=True, rollback=0)
    ext.llama_set_embeddings_nextn(guess.context, True, True)
    said = Said([int(main.evaluate(prompt, 0)[-1].argmax())])
    # A head's row is a token with the target's hidden row of the token before it.
    hidden = main.hidden(len(prompt))
    _catch_up(guess, prompt, 0, np.vstack((np.zeros((1, main.width)), hidden[:-1])))
    carried = hidden[-1:]
    position = len(prompt)
    while len(said.tokens) < count:
        last = said.tokens[-1]
        drafted = _draft(guess, last, position, carried, min(k, count - len(said.tokens) - 1))
        logits = main.evaluate([last, *drafted], position)
        hidden = main.hidden(1 + len(drafted))
        right = 0
        for row, wanted in enumerate([*drafted, None]):
            said.tokens.append(int(logits[row].argmax()))
            if said.tokens[-1] != wanted:
                break
            right += 1
        said.drafted += len(drafted)
        said.accepted += right
        assert main.cut(position + 1 + right)
        assert guess.cut(position)
        rows = np.vstack((carried, hidden[:right]))
        _catch_up(guess, [last, *drafted[:right]], position, rows)
        carried = hidden[right : right + 1]
        position += 1 + right
    main.close()
    guess.close()
    return said


def _catch_up(guess: Native, tokens: Sequence[int], start: int, rows: Rows) -> None:
    """Let each draft layer see what the target has evaluated."""
    for layer in range(guess.layers):
        assert guess.cut(start)
        guess.evaluate(tokens, start, rows, layer)


def _draft(guess: Native, last: int, position: int, carried: Rows, k: int) -> list[int]:
    """One layer feeds itself; of several, each drafts one token after all those before it."""
    drafted: list[int] = []
    if guess.layers == 1:
        token, row = last, carried
        for i in range(k):
            token = int(guess.evaluate([token], position + i, row)[0].argmax())
            row = guess.hidden(1)
            drafted.append(token)
        return drafted
    rows = carried
    for layer in range(min(k, guess.layers)):
        assert guess.cut(position)
        tokens = [last, *drafted]
        drafted.append(int(guess.evaluate(tokens, position, rows, layer)[-1].argmax()))
        rows = np.vstack((rows, guess.hidden(len(tokens))[-1:]))
    return drafted
