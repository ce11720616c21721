"""The tiny models whose files of base logits llama-perplexity wrote for the tests.

Random weights, of odd and of even vocabulary; one of them has its first token replaced by BOS.
"""

from dataclasses import dataclass
from pathlib import Path

from gguf import GGUFReader

from tests.scripted_gguf import write_random_gguf

_TEXT = "What follows is read byte by byte, so a short text makes many chunks. "


@dataclass(frozen=True, slots=True)
class Tiny:
    """A base and a model that is held against it, of a vocabulary of 258 and `more_tokens`.

    Seven chunks and four of them in a batch: the last group is smaller.
    """

    name: str
    more_tokens: int
    bos: bool
    n_ctx: int = 32
    n_batch: int = 128
    n_ubatch: int = 64
    chunks: int = 7

    def write_base(self, folder: Path) -> Path:
        """The base."""
        return self._write(folder / f"{self.name}-base.gguf", 11)

    def write_quant(self, folder: Path) -> Path:
        """A model of the same vocabulary and other weights."""
        return self._write(folder / f"{self.name}-other.gguf", 12)

    def write_text(self, folder: Path) -> Path:
        """The text, a token for each byte, with an end that is no whole chunk."""
        text = folder / f"{self.name}.txt"
        length = self.chunks * self.n_ctx + 5
        text.write_text((_TEXT * (length // len(_TEXT) + 1))[:length], "utf-8")
        return text

    def _write(self, path: Path, seed: int) -> Path:
        write_random_gguf(path, "llama", seed, blocks=2, more_tokens=self.more_tokens)
        if self.bos:
            reader = GGUFReader(path, "r+")
            field = reader.get_field("tokenizer.ggml.add_bos_token")
            assert field is not None
            field.parts[field.data[0]][0] = True
            reader.data.flush()
        return path


ODD = Tiny("odd", more_tokens=1, bos=False)
EVEN = Tiny("even", more_tokens=0, bos=True)
TINY = (ODD, EVEN)
