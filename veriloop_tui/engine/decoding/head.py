"""A draft head (MTP): foretells the next tokens from the target's hidden rows.

What it says is only ever a guess that the target model checks, so nothing here can change an
answer; a wrong row costs accepted tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from veriloop_tui.engine.decoding.batch import N_BATCH, Batch, Rows, floats_at
from veriloop_tui.engine.decoding.llama import Model
from veriloop_tui.engine.decoding.memory import (
    Memory,
    Shape,
    context_params,
    sequence_state,
    set_sequence_state,
)
from veriloop_tui.engine.decoding.native import api, ext
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import DraftRefused

# Architectures whose draft graph llama.cpp 0c1e570 can build: with one layer, or a layer a token.
_ONE_LAYER: Final = frozenset(
    {
        "bailingmoe3",
        "cohere2moe",
        "deepseek2",
        "deepseek32",
        "deepseek4",
        "glm-dsa",
        "glm4moe",
        "nemotron_h_moe",
        "qwen35",
        "qwen35moe",
        "qwen3next",
    }
)
_CHAINED: Final = frozenset({"hy_v3", "mimo2", "step35"})
# In these graphs hidden rows come out for rows with logits only, in all others for every row, and
# llama.cpp does not tell them apart: asked for the wrong kind it gives another token's row.
_ROWS_OF_OUTPUTS: Final = frozenset({"deepseek4", "mimo2", "nemotron_h_moe", "qwen3next", "step35"})
# Beyond this many rows the oldest are dropped: the head then sees a gap, which only costs guesses.
_MAX_PENDING: Final = N_BATCH // 2


def check_head(architecture: str, target: Model, head: Model) -> None:
    """Raise `DraftRefused` where the head is not the target's, or has no graph to run it.

    llama.cpp would load it, and then draft noise or end the process.
    """
    if head.draft_layers < 1:
        raise DraftRefused("it holds no draft layers")
    if architecture not in _ONE_LAYER | _CHAINED:
        raise DraftRefused(f"llama.cpp has no draft graph for the architecture {architecture}")
    if head.draft_layers > 1 and architecture not in _CHAINED:
        count = head.draft_layers
        raise DraftRefused(f"it has {count} layers, and llama.cpp runs one for {architecture}")
    if head.vocabulary.size != target.vocabulary.size:
        sizes = f"{head.vocabulary.size} tokens, the model's {target.vocabulary.size}"
        raise DraftRefused(f"its vocabulary has {sizes}")
    if head.width != target.width:
        raise DraftRefused(f"its width is {head.width}, the model's {target.width}")


class Head:
    """The context of a draft head. It follows sequence 0 of its target. For one thread."""

    def __init__(
        self, architecture: str, head: Model, memory: Memory, settings: LoadSettings, shape: Shape
    ) -> None:
        """Make an MTP context and let `memory` keep hidden rows. Raises `DraftRefused`."""
        params = context_params(settings, Shape(shape.n_ctx, shape.threads))
        params.ctx_type = api.LLAMA_CONTEXT_TYPE_MTP
        params.n_outputs_max = 1
        self.context: Any = api.llama_init_from_model(head.handle, params)
        if not self.context:
            raise DraftRefused("llama.cpp could not make a context for it; see its log")
        memory.emit_hidden()
        masked = architecture in _ROWS_OF_OUTPUTS
        ext.llama_set_embeddings_nextn(self.context, True, masked)
        self.layers = head.draft_layers
        self._vocabulary_size = head.vocabulary.size
        self._width = head.width
        self._memory: Any = api.llama_get_memory(self.context)
        self._batch = Batch(N_BATCH, head.width)
        # Cells hold positions below `_length`; `_first` is the position of the first row to come.
        self._length = self._first = 0
        self._tokens: list[int] = []
        self._rows: list[Rows] = []
        # The hidden row of the last token that the target evaluated: it goes with the next token.
        self._carried: Rows = np.zeros((1, head.width), np.float32)

    @property
    def longest(self) -> int | None:
        """The most tokens it can draft; `None` where it has no bound of its own."""
        return self.layers if self.layers > 1 else None

    def follow(self, start: int, tokens: Sequence[int], hidden: Rows) -> None:
        """The target has evaluated `tokens` from position `start`, and `hidden` came out of it.

        Hidden rows are [tokens, width]. Nothing is evaluated here yet.
        """
        known = self._first + len(self._tokens) - start
        rows = np.concatenate((self._carried, hidden[: len(tokens) - 1]))
        self._tokens.extend(tokens[known:])
        self._rows.append(rows[known:])
        self._carried = hidden[len(tokens) - 1 : len(tokens)]
        if len(self._tokens) > _MAX_PENDING + N_BATCH:
            self._drop_oldest()

    def catch_up(self) -> None:
        """Evaluate what was only collected so far, as after each batch of a prompt."""
        tokens, rows = self._take_pending()
        for at in range(0, len(tokens), N_BATCH):
            part, part_rows = tokens[at : at + N_BATCH], rows[at : at + N_BATCH]
            for layer in range(self.layers):
                self._evaluate(layer, self._first, part, part_rows)
            self._length = self._first = self._first + len(part)

    def draft(self, last: int, count: int) -> list[int]:
        """Up to `count` tokens that may follow `last`, which was drawn but is not evaluated yet."""
        known, rows = self._take_pending()
        first = self._first
        known.append(last)
        rows = np.concatenate((rows, self._carried))
        count = min(count, self.longest or count)
        if self.layers > 1:
            drafted = self._draft_chained(known, rows, count)
        else:
            drafted = self._draft_repeatedly(known, rows, count)
        # Of the drafted tokens only guesses of hidden rows are there, so they are taken out.
        self._length = self._first = first + len(known)
        self._cut_cells(self._length)
        return drafted

    def _draft_repeatedly(self, known: list[int], rows: Rows, count: int) -> list[int]:
        """One layer, which goes on from what it said itself."""
        first = self._first
        self._evaluate(0, first, known, rows)
        drafted = [self._best()]
        while len(drafted) < count:
            position = first + len(known) + len(drafted) - 1
            self._evaluate(0, position, drafted[-1:], self._own_row())
            drafted.append(self._best())
        return drafted

    def _draft_chained(self, known: list[int], rows: Rows, count: int) -> list[int]:
        """A layer for each token; each has cells of its own, so it reads all rows once more."""
        drafted: list[int] = []
        for layer in range(self.layers):
            ahead = min(layer, count) if layer < count else 0
            self._evaluate(
                layer, self._first, [*known, *drafted[:ahead]], rows[: len(known) + ahead]
            )
            if layer < count:
                drafted.append(self._best())
                rows = np.concatenate((rows, self._own_row()))
        return drafted

    def cut(self, position: int, carried: bytes = b"") -> None:
        """The target went back to its first `position` tokens.

        `carried` is the hidden row of the last of them, where it is known.
        """
        if position == self._first + len(self._tokens):
            return
        self._tokens, self._rows = [], []
        self._begin_at(position)
        row = np.frombuffer(carried, np.float32) if carried else np.zeros(self._width, np.float32)
        self._carried = row.reshape(1, self._width)

    def state(self) -> tuple[bytes, int, bytes]:
        """Its evaluated rows as llama.cpp writes them, how many, and the row that is carried."""
        self.catch_up()
        return sequence_state(self.context), self._length, self._carried.tobytes()

    def adopt(self, state: bytes, length: int, carried: bytes) -> bool:
        """Take over what `state` gave; False, and empty, if llama.cpp refuses it."""
        self.cut(0)
        whole = len(carried) == 4 * self._width and set_sequence_state(self.context, state)
        if whole:
            self._length = self._first = length
            self._carried = np.frombuffer(carried, np.float32).reshape(1, self._width)
        return whole

    def close(self) -> None:
        """Give the context's memory back."""
        self._batch.free()
        api.llama_free(self.context)

    def _take_pending(self) -> tuple[list[int], Rows]:
        tokens, rows = self._tokens, self._rows
        self._tokens, self._rows = [], []
        empty = np.zeros((0, self._width), np.float32)
        return tokens, np.concatenate((empty, *rows))

    def _drop_oldest(self) -> None:
        tokens, rows = self._take_pending()
        gone = len(tokens) - _MAX_PENDING
        self._begin_at(self._first + gone)
        self._tokens, self._rows = tokens[gone:], [rows[gone:]]

    def _begin_at(self, position: int) -> None:
        """The next row to come is that of `position`.

        llama.cpp refuses a gap between positions, so before one all cells are given up.
        """
        self._length = position if position <= self._length else 0
        self._cut_cells(self._length)
        self._first = position

    def _evaluate(self, layer: int, start: int, tokens: Sequence[int], rows: Rows) -> None:
        """Evaluate rows from position `start` on. Raises `DraftRefused` where llama.cpp fails."""
        if self.layers > 1:
            self._cut_cells(start)
            ext.llama_set_nextn_layer_offset(self.context, layer)
        self._batch.fill(tokens, start, last_only=True)
        self._batch.rows[: len(tokens)] = rows
        code = api.llama_decode(self.context, self._batch.native())
        if self.layers > 1:
            ext.llama_set_nextn_layer_offset(self.context, 0)
        if code != 0:
            raise DraftRefused(f"llama.cpp could not evaluate it (code {code})")

    def _best(self) -> int:
        pointer = api.llama_get_logits_ith(self.context, self._batch.count - 1)
        return int(floats_at(pointer, self._vocabulary_size).argmax())

    def _own_row(self) -> Rows:
        pointer = ext.llama_get_embeddings_nextn_ith(self.context, self._batch.count - 1)
        return floats_at(pointer, self._width).reshape(1, self._width).copy()

    def _cut_cells(self, position: int) -> None:
        api.llama_memory_seq_rm(self._memory, 0, position, -1)
