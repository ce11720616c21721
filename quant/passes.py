"""A model in a process of its own, asked for the logits of one batch of chunks after the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from quant.make_child import Worker
from quant.statistics import Values
from veriloop_tui.core.ports import Cancel
from veriloop_tui.errors import EngineStartFailed, QuantError

Chunk = list[int]


@dataclass(frozen=True, slots=True)
class Shape:
    """How text is cut and decoded; `sequences` chunks at once."""

    n_ctx: int = 512
    n_batch: int = 2048
    n_ubatch: int = 512
    threads: int = 2

    @property
    def sequences(self) -> int:
        """As llama-perplexity: as many chunks as a batch holds."""
        return max(1, self.n_batch // self.n_ctx)

    @property
    def first(self) -> int:
        """The first position whose logits are scored."""
        return self.n_ctx // 2


class PassFailed(QuantError):
    """The process of a model ended while it was needed."""

    def __init__(self, model: str, problem: str, log: str) -> None:
        self.model, self.problem, self.log = model, problem, log
        super().__init__(f"{model} could not be run: {problem}. llama.cpp said: {log}")


class Pass(Worker):
    """A loaded model. `tokens` are those of the text, if one was given. End it with `end`."""

    def __init__(
        self,
        model: Path,
        shape: Shape,
        shared: Path,
        text: Path | None,
        special: bool,
        cancel: Cancel,
    ) -> None:
        """Load it. Raises `EngineStartFailed`, `Cancelled`."""
        order = asdict(shape) | {
            "sequences": shape.sequences,
            "model": str(model),
            "shared": str(shared),
            "text": str(text) if text else "",
            "special": special,
        }
        super().__init__("quant.passes_child", json.dumps(order))
        self._model, self._shape, self._cancel = model, shape, cancel
        self._answers: Iterator[str] = self.lines(cancel)
        line = next(self._answers, None)
        if line is None:
            raise EngineStartFailed(f"{model.name} could not be loaded", self.last_words)
        told = json.loads(line)
        self.vocabulary: int = told["vocabulary"]
        self.bos: int | None = told["bos"] if told["add_bos"] else None
        self.tokens: list[int] = told["tokens"]
        self.texts = shared.with_suffix(".vocabulary").read_text("ascii").split("\n")
        rows = shape.sequences * (shape.n_ctx - shape.first)
        self._logits = np.memmap(shared, np.float32, "r", shape=(rows, self.vocabulary))

    def logits(self, chunks: list[Chunk]) -> list[Values]:
        """Each chunk's rows, good until the next call. Raises `PassFailed`, `Cancelled`."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(chunks).encode() + b"\n")
            self._child.stdin.flush()
        except OSError:
            raise PassFailed(self._model.name, "its process is gone", self.last_words) from None
        if next(self._answers, None) is None:
            raise PassFailed(self._model.name, self.ending or "it stopped", self.last_words)
        rows = self._shape.n_ctx - self._shape.first
        return [self._logits[at * rows : (at + 1) * rows - 1] for at in range(len(chunks))]
