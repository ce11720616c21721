"""The arrays of tokens that one call of llama.cpp evaluates."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from veriloop_tui.engine.decoding.native import api

# Tokens per llama_decode during prefill; also how often a GPU, which knows no abort, can stop.
N_BATCH: Final = 512

Rows = NDArray[np.float32]


def floats_at(pointer: Any, count: int) -> Rows:
    """A view of `count` floats that llama.cpp owns; valid until its next evaluation."""
    address = ctypes.addressof(pointer.contents)
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


class Batch:
    """llama.cpp's batch with arrays of our own to fill."""

    def __init__(self, capacity: int, width: int = 0) -> None:
        """Room for `capacity` tokens, with embedding rows of `width` beside them if not 0."""
        self._native = api.llama_batch_init(capacity, width, 1)
        self.count = 0
        native = self._native
        self._ids: NDArray[np.int32] = np.zeros(capacity, np.int32)
        if width:
            # llama.cpp allocates one of the two; a draft head needs both.
            self.rows: Rows = np.ctypeslib.as_array(native.embd, (capacity * width,)).reshape(
                capacity, width
            )
            native.token = self._ids.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        else:
            self._ids = np.ctypeslib.as_array(native.token, (capacity,))
        self._own_ids = bool(width)
        self._positions = np.ctypeslib.as_array(native.pos, (capacity,))
        np.ctypeslib.as_array(native.n_seq_id, (capacity,))[:] = 1
        self._sequences = [np.ctypeslib.as_array(native.seq_id[i], (1,)) for i in range(capacity)]
        for one in self._sequences:
            one[0] = 0
        self._outputs = np.ctypeslib.as_array(native.logits, (capacity,))
        self._mixed = 0

    def fill(self, tokens: Sequence[int], start: int, *, last_only: bool) -> None:
        """Consecutive tokens of sequence 0 from position `start`; logits of the last, or of all."""
        count = self.count = len(tokens)
        for one in self._sequences[: self._mixed]:
            one[0] = 0
        self._mixed = 0
        self._ids[:count] = tokens
        self._positions[:count] = np.arange(start, start + count)
        self._outputs[:count] = not last_only
        self._outputs[count - 1] = 1

    def fill_each(self, entries: Sequence[tuple[int, int, int]]) -> None:
        """One (sequence, token, position) a row, with logits for each."""
        self.count = len(entries)
        self._mixed = max(self._mixed, self.count)
        for i, (sequence, token, position) in enumerate(entries):
            self._sequences[i][0] = sequence
            self._ids[i], self._positions[i], self._outputs[i] = token, position, 1

    def native(self) -> Any:
        """The structure to pass to llama.cpp."""
        self._native.n_tokens = self.count
        return self._native

    def free(self) -> None:
        """Give the arrays back."""
        if self._own_ids:
            # It is not llama.cpp's to free.
            self._native.token = ctypes.POINTER(ctypes.c_int32)()
        api.llama_batch_free(self._native)
