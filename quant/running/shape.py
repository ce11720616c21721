"""How a text is cut into chunks and decoded, as llama-perplexity does it.

A chunk is `n_ctx` tokens; only predictions from its second half are scored. As many chunks as fit
into `n_batch` are decoded side by side as sequences. llama.cpp computes at most `n_ubatch` tokens
at once, so many of each sequence as share them out; a step here is exactly one such computation,
which gives the same numbers as one call for all and needs room for the logits of one step only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """Positions `start` to `stop` of every chunk of a group, `kept` of which are scored.

    The first of them is `first_kept`; its logits predict the token after it.
    """

    start: int
    stop: int
    first_kept: int
    kept: int


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes, in tokens."""

    n_ctx: int = 512
    n_batch: int = 2048
    n_ubatch: int = 512

    @property
    def sequences(self) -> int:
        """How many chunks are decoded side by side."""
        return max(1, self.n_batch // self.n_ctx)

    @property
    def first(self) -> int:
        """The first position whose logits are asked for."""
        return self.n_ctx // 2

    @property
    def rows(self) -> int:
        """Scored positions of a chunk: nothing is known of what follows its last token."""
        return self.n_ctx - 1 - self.first

    @property
    def step_rows(self) -> int:
        """The most rows that one step scores."""
        return max(
            step.kept * count for count in {self.sequences, 1} for step in steps(self, count)
        )

    def groups(self, chunks: int) -> list[range]:
        """The numbers of the chunks that are decoded side by side."""
        starts = range(0, chunks, self.sequences)
        return [range(at, min(chunks, at + self.sequences)) for at in starts]


def steps(shape: Shape, chunks: int) -> Iterator[Step]:
    """The computations for a group of so many chunks, in their order."""
    piece = min(shape.n_ctx, shape.n_batch)
    width = max(1, shape.n_ubatch // chunks)
    for begin in range(0, shape.n_ctx, piece):
        end = min(begin + piece, shape.n_ctx)
        for start in range(begin, end, width):
            stop = min(start + width, end)
            first = max(start, shape.first)
            kept = max(0, min(stop, shape.n_ctx - 1) - first)
            yield Step(start, stop, first, kept)


def cut(tokens: int, shape: Shape, limit: int = 0) -> int:
    """How many chunks a text of so many tokens has, at most `limit` unless that is 0.

    As in llama-perplexity it must have two, else the answer is 0, and its rest is left out.
    """
    count = tokens // shape.n_ctx
    if count < 2:
        return 0
    return min(count, limit) if limit else count
