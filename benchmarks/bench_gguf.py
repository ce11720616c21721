"""Headers beside the `gguf` package's reader in one run: `python -m benchmarks.bench_gguf [FILE]`.

Without a file, one with a large vocabulary is made: 248,320 tokens and as many merges. Prints
milliseconds (of ours the best of some turns) and the ratio; trust the ratio.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter

from veriloop_tui.engine.gguf.facts import read_facts

_TOKENS = 248_320
_BLOCKS = 64
_TENSORS = 13  # of each block
_TURNS = 7


def make_model(path: Path) -> Path:
    """A header like that of a large model; its weights are next to nothing."""
    writer = GGUFWriter(path, "qwen35")
    writer.add_block_count(_BLOCKS)
    writer.add_head_count(24)
    tokens = [f"{number:x}token"[: 3 + number % 9] + f"{number}" for number in range(_TOKENS)]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * _TOKENS)
    writer.add_token_merges([f"{token[:3]} {token[3:]}" for token in tokens])
    for block in range(_BLOCKS):
        for tensor in range(_TENSORS):
            writer.add_tensor(f"blk.{block}.part{tensor}.weight", np.ones((2, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def timed(action: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        given = sys.argv[1:]
        path = Path(given[0]) if given else make_model(Path(folder) / "large.gguf")
        facts = read_facts(path)
        ours = min(timed(lambda: read_facts(path)) for _ in range(_TURNS))
        theirs = timed(lambda: GGUFReader(path))
        print(f"header          {facts.header_size / 2**20:.1f} MiB")
        print(f"vocabulary      {facts.vocabulary_size:,} tokens")
        print(f"our reader      {ours:.0f} ms")
        print(f"gguf's reader   {theirs:.0f} ms, {theirs / ours:.0f} times ours")


if __name__ == "__main__":
    main()
