"""A llama.cpp context: which tokens it has evaluated, in which sequence, and the way back.

Every call that llama.cpp would get wrong without saying so is kept from happening here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from veriloop_tui.engine.decoding.batch import N_BATCH, Batch, Rows, floats_at
from veriloop_tui.engine.decoding.checkpoints import Checkpoint, Checkpoints
from veriloop_tui.engine.decoding.llama import LOG, Model
from veriloop_tui.engine.decoding.native import api, ext
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import EngineRefused, ModelFileInvalid

_ABORTED: Final = 2
_BF16: Final = 30  # GGML_TYPE_BF16, which the bindings leave out
_KV_TYPES: Final = {
    "f32": api.GGML_TYPE_F32,
    "f16": api.GGML_TYPE_F16,
    "bf16": _BF16,
    "q8_0": api.GGML_TYPE_Q8_0,
    "q5_1": api.GGML_TYPE_Q5_1,
    "q5_0": api.GGML_TYPE_Q5_0,
    "q4_1": api.GGML_TYPE_Q4_1,
    "q4_0": api.GGML_TYPE_Q4_0,
}
_FLASH: Final = {
    "auto": api.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": api.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": api.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}

Cancelled = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a context: tokens, threads, sequences, and tokens that can be taken back.

    `rollback` costs a recurrent model one more copy of its state for each token and sequence.
    """

    n_ctx: int
    threads: int
    sequences: int = 1
    rollback: int = 0


def context_params(settings: LoadSettings, shape: Shape) -> Any:
    """llama.cpp's parameters of a context for these settings."""
    params = api.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = shape.n_ctx, N_BATCH, N_BATCH
    params.n_threads = params.n_threads_batch = shape.threads
    params.n_seq_max = shape.sequences
    # All sequences share the cells, so a prompt that they have in common is kept once.
    params.kv_unified = True
    params.n_rs_seq = shape.rollback
    # Rows of logits: of a whole batch they would take gigabytes.
    params.n_outputs_max = max(shape.sequences, 1 + shape.rollback)
    params.type_k, params.type_v = _KV_TYPES[settings.type_k], _KV_TYPES[settings.type_v]
    params.flash_attn_type = _FLASH[settings.flash_attention]
    params.no_perf = True
    return params


class Memory:
    """A context with the tokens that were evaluated into its sequences. For one thread.

    Sequence 0 is kept from one request to the next; the others are candidates' continuations.
    """

    def __init__(self, model: Model, settings: LoadSettings, shape: Shape) -> None:
        """Make the context. Raises `ModelFileInvalid` if llama.cpp refuses."""
        params = context_params(settings, shape)
        self.context: Any = api.llama_init_from_model(model.handle, params)
        if not self.context:
            problem = f"llama.cpp could not make a context of {shape.n_ctx} tokens; see its log"
            raise ModelFileInvalid(str(model.path), problem)
        self.n_ctx: int = api.llama_n_ctx(self.context)
        self.sequences = shape.sequences
        self.recurrent = model.recurrent
        self.vocabulary_size = model.vocabulary.size
        self.width = model.width
        self._memory: Any = api.llama_get_memory(self.context)
        if not self._memory:
            raise ModelFileInvalid(str(model.path), "it keeps no context, so it cannot write text")
        # Without snapshots of its state a recurrent model cannot take a token back.
        self.rollback = int(api.llama_n_rs_seq(self.context)) if self.recurrent else shape.rollback
        self._batch = Batch(N_BATCH)
        self._no_abort = api.ggml_abort_callback()
        self._tokens: list[list[int]] = [[] for _ in range(shape.sequences)]
        self._takeable = self._forked = 0
        self._hidden_on = False
        self.checkpoints = Checkpoints()

    @property
    def tokens(self) -> tuple[int, ...]:
        """What has been evaluated into sequence 0."""
        return tuple(self._tokens[0])

    def __len__(self) -> int:
        """The number of tokens in sequence 0."""
        return len(self._tokens[0])

    @property
    def used(self) -> int:
        """Cells in use: a prompt that sequences share counts once."""
        first, *others = self._tokens
        shared = self._forked
        return len(first) + sum(max(0, len(one) - shared) for one in others)

    def emit_hidden(self, wanted: bool = True) -> None:
        """Whether to keep the hidden row of each evaluated token, for a draft head."""
        ext.llama_set_embeddings_nextn(self.context, wanted, False)
        self._hidden_on = wanted

    def hidden(self, count: int) -> Rows:
        """A copy of the hidden rows of the last evaluation's first `count` tokens."""
        return self._hidden_view(count).copy()

    def _hidden_view(self, count: int) -> Rows:
        pointer = ext.llama_get_embeddings_nextn(self.context)
        if not pointer:
            raise EngineRefused(500, "llama.cpp gives no hidden rows for the draft head")
        return floats_at(pointer, count * self.width).reshape(count, self.width)

    def logits(self, row: int) -> Rows:
        """Logits [vocabulary] of a row of the last evaluation; valid until the next one."""
        return floats_at(api.llama_get_logits_ith(self.context, row), self.vocabulary_size)

    # Where to begin

    def keep(self, prompt: Sequence[int]) -> int:
        """Cut sequence 0 back to what it shares with `prompt`; returns how many tokens that is.

        At least the prompt's last token is left to evaluate, since its logits are needed. A
        recurrent memory goes back to its best checkpoint.
        """
        self._drop_candidates()
        return self._cut(self.shared(prompt))

    def shared(self, prompt: Sequence[int]) -> int:
        """How many of the tokens in sequence 0 `prompt` begins with, its last one left out."""
        shared = 0
        for one, wanted in zip(self._tokens[0], prompt[:-1], strict=False):
            if one != wanted:
                break
            shared += 1
        return shared

    def carried(self, position: int) -> bytes:
        """The hidden row of the token before `position`, if a checkpoint there holds it."""
        found = self.checkpoints.best(position)
        return found.hidden if found is not None and found.position == position else b""

    def _cut(self, shared: int) -> int:
        mine = self._tokens[0]
        if shared < len(mine):
            if self.recurrent:
                shared = self._restore(shared)
            elif not api.llama_memory_seq_rm(self._memory, 0, shared, -1):
                shared = 0
        if shared == 0:
            self.clear()
        del mine[shared:]
        return shared

    def checkpoint(self) -> None:
        """Remember the state of sequence 0 as it is, where going back needs that."""
        if self.recurrent and self._tokens[0]:
            self.checkpoints.add(len(self), self._state)

    def _state(self) -> Checkpoint:
        hidden = self._hidden_view(self._batch.count)[-1].tobytes() if self._hidden_on else b""
        state = sequence_state(self.context, api.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)
        return Checkpoint(len(self), state, hidden)

    def _restore(self, limit: int) -> int:
        """Go back to the last checkpoint at or before `limit`; 0 if there is none."""
        self.checkpoints.forget_after(limit)
        found = self.checkpoints.best(limit)
        if found is None:
            return 0
        flags = api.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
        # The order matters: the attention's cells beyond it must go after the state has come.
        if not set_sequence_state(self.context, found.state, flags) or not api.llama_memory_seq_rm(
            self._memory, 0, found.position, -1
        ):
            return 0
        self._takeable = 0
        return found.position

    def state(self) -> bytes:
        """All of sequence 0 as llama.cpp writes it."""
        return sequence_state(self.context)

    def adopt(self, tokens: Sequence[int], state: bytes, checkpoints: Sequence[Checkpoint]) -> bool:
        """Take over a sequence that was saved; False, and empty, if llama.cpp refuses it."""
        self.clear()
        if len(tokens) > self.n_ctx or not set_sequence_state(self.context, state):
            self.clear()
            return False
        self._tokens[0][:] = tokens
        self.checkpoints.adopt(checkpoints)
        return True

    # Going on

    def prefill(self, tokens: Sequence[int], cancelled: Cancelled) -> bool:
        """Evaluate at most N_BATCH tokens of a prompt in sequence 0; False if cancelled.

        After an abort in the middle of a batch the memory goes back to where it was, or to a
        checkpoint, or empties: its state may be wrong though its positions look right. Raises
        `EngineRefused` if llama.cpp cannot.
        """
        if cancelled():
            return False

        def give_up(_data: object) -> bool:
            LOG.muted = cancelled()
            return LOG.muted

        abort = api.ggml_abort_callback(give_up)
        api.llama_set_abort_callback(self.context, abort, None)
        try:
            self._batch.fill(tokens, len(self), last_only=True)
            done = self._decode()
        finally:
            LOG.muted = False
            # The callback costs a call into Python per graph node, too much for single tokens.
            api.llama_set_abort_callback(self.context, self._no_abort, None)
        if not done:
            before = len(self)
            # Cut even where nothing seems to be there: part of the batch may have been written.
            self._tokens[0].extend(tokens)
            self._cut(before)
            return False
        self._tokens[0].extend(tokens)
        self._takeable = 0
        return True

    def advance(self, tokens: Sequence[int]) -> None:
        """Evaluate tokens at the end of sequence 0, each with logits. Raises `EngineRefused`."""
        self._batch.fill(tokens, len(self), last_only=False)
        self._decode()
        self._tokens[0].extend(tokens)
        self._takeable = min(self.rollback, len(tokens) - 1)

    def take_back(self, count: int) -> None:
        """Remove the last `count` tokens, fewer than the last `advance` evaluated; once.

        Raises `EngineRefused` where llama.cpp could not do that exactly.
        """
        if count == 0:
            return
        mine = self._tokens[0]
        # A recurrent memory accepts some of what it cannot do, and then holds a wrong state.
        exact = count <= self._takeable if self.recurrent else count <= len(mine)
        if not exact or not api.llama_memory_seq_rm(self._memory, 0, len(mine) - count, -1):
            self.clear()
            raise EngineRefused(500, f"{count} tokens cannot be taken back")
        del mine[len(mine) - count :]
        self._takeable = 0

    # Candidates

    def fork(self, count: int) -> None:
        """Let sequences 1 to `count` − 1 begin as copies of sequence 0, right after a prefill."""
        for sequence in range(1, count):
            api.llama_memory_seq_cp(self._memory, 0, sequence, -1, -1)
            self._tokens[sequence] = list(self._tokens[0])
        self._forked = len(self)

    def advance_each(self, tokens: Sequence[tuple[int, int]]) -> None:
        """Evaluate one token for each (sequence, token); row i holds the i-th one's logits.

        Raises `EngineRefused`.
        """
        self._batch.fill_each([(s, t, len(self._tokens[s])) for s, t in tokens])
        self._decode()
        for sequence, token in tokens:
            self._tokens[sequence].append(token)
        self._takeable = 0

    def end(self, sequence: int) -> None:
        """Free the cells of a candidate that has ended; sequence 0 stays."""
        if sequence and self._tokens[sequence]:
            api.llama_memory_seq_rm(self._memory, sequence, -1, -1)
            self._tokens[sequence].clear()

    def _drop_candidates(self) -> None:
        for sequence in range(1, self.sequences):
            self.end(sequence)

    # The end

    def clear(self) -> None:
        """Forget everything."""
        api.llama_memory_clear(self._memory, True)
        for tokens in self._tokens:
            tokens.clear()
        self.checkpoints.forget_after(0)
        self._takeable = self._forked = 0

    def close(self) -> None:
        """Give the context's memory back."""
        self._batch.free()
        api.llama_free(self.context)

    def _decode(self) -> bool:
        code = api.llama_decode(self.context, self._batch.native())
        if code == 0:
            return True
        if code == _ABORTED:
            return False
        self.clear()
        raise EngineRefused(500, f"llama.cpp could not evaluate the tokens (code {code})")


def sequence_state(context: Any, flags: int = 0) -> bytes:
    """The state of a context's sequence 0 as llama.cpp writes it, or only the recurrent part."""
    size = api.llama_state_seq_get_size_ext(context, 0, flags)
    buffer = (ctypes.c_uint8 * size)()
    written = api.llama_state_seq_get_data_ext(context, buffer, size, 0, flags)
    return bytes(memoryview(buffer)[:written])


def set_sequence_state(context: Any, state: bytes, flags: int = 0) -> bool:
    """Put a state back that `sequence_state` gave; False if llama.cpp refuses it."""
    buffer = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
    read = api.llama_state_seq_set_data_ext(context, buffer, len(state), 0, flags)
    return bool(read == len(state))
