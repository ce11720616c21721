"""How much the size of a batch moves a model's logits, and how often it changes the best token.

Speculation evaluates several tokens at once where plain decoding evaluates one, and llama.cpp sums
in another order then. Run `python -m benchmarks.bench_rounding MODEL.gguf [--text FILE]`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veriloop_tui.engine.decoding.llama import Model, silence_logs
from veriloop_tui.engine.decoding.memory import Memory, Shape
from veriloop_tui.engine.settings import LoadSettings

PROMPT: Final = 40
SIZES: Final = (2, 4, 8)
_TOKENS: Final = 600


@dataclass(frozen=True, slots=True)
class Rounding:
    """Logits of batches of `size` tokens beside those of single tokens."""

    size: int
    largest: float  # of all differences
    median: float  # of each position's largest one
    changed: int  # positions whose best token is another one
    positions: int


def measure(
    settings: LoadSettings, tokens: Sequence[int], sizes: Sequence[int] = SIZES
) -> list[Rounding]:
    """Evaluate `tokens` one at a time after the first few, then in batches of each size."""
    silence_logs()
    model = Model(settings.model, settings, lambda: True, heads=False)
    shape = Shape(len(tokens) + 1, settings.threads or 1, rollback=max(sizes))
    memory = Memory(model, settings, shape)
    single = _logits(memory, tokens, 1)
    found = [_compared(single, _logits(memory, tokens, size), size) for size in sizes]
    memory.close()
    model.close()
    return found


def _logits(memory: Memory, tokens: Sequence[int], size: int) -> NDArray[np.float32]:
    memory.clear()
    assert memory.prefill(tokens[:PROMPT], lambda: False)
    rows: list[NDArray[np.float32]] = []
    for at in range(PROMPT, len(tokens) - size + 1, size):
        memory.advance(tokens[at : at + size])
        rows += [memory.logits(row).copy() for row in range(size)]
    return np.array(rows)


def _compared(single: NDArray[np.float32], batched: NDArray[np.float32], size: int) -> Rounding:
    single = single[: len(batched)]
    moved = np.abs(batched - single).max(axis=1)
    changed = int((batched.argmax(axis=1) != single.argmax(axis=1)).sum())
    return Rounding(size, float(moved.max()), float(np.median(moved)), changed, len(single))


def main() -> None:
    """Print a line for each setting, number of threads and size of batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, default=Path(__file__), help="a text to evaluate")
    given = parser.parse_args()
    silence_logs()
    plain = LoadSettings(given.model)
    model = Model(given.model, plain, lambda: True, heads=False)
    tokens = model.vocabulary.tokenise(given.text.read_text("utf-8"))[:_TOKENS]
    model.close()
    exact = replace(plain, flash_attention="off", type_k="f32", type_v="f32")
    for name, kind in (("default", plain), ("exact", exact)):
        for threads in (1, 2):
            settings = replace(kind, threads=threads)
            for one in measure(settings, tokens):
                print(
                    f"{name}, {threads} threads, batches of {one.size}: logits differ by "
                    f"{one.largest:.1e} at most, {one.median:.1e} at the median position; "
                    f"the best token differs at {one.changed} of {one.positions}"
                )


if __name__ == "__main__":
    main()
