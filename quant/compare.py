"""Base and quants in lock-step over the same chunks: no logits are ever written down."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import numpy as np

from quant.corpora import Corpus
from quant.passes import Pass, PassFailed, Shape
from quant.scoring import Packed, Tokens, not_finite, pack, score
from quant.statistics import Scores, Values
from veriloop_tui.core.ports import Cancel
from veriloop_tui.errors import QuantError, UsageError


@dataclass(slots=True)
class Measured:
    """What is known so far; a quant that was stopped has a problem and no scores."""

    chunks: int
    scores: dict[int, list[Scores]] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)
    floor: list[Scores] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def join(parts: list[Scores]) -> Scores:
    """Scores of single chunks as those of all."""

    def one(name: str) -> Values:
        return np.concatenate([getattr(part, name) for part in parts])

    return Scores(*(one(n) for n in ("nll", "base_nll", "kld", "delta_p", "same_top")))


def compare(
    base: Path,
    quants: list[Path],
    corpus: Corpus,
    shape: Shape,
    limit: int,
    step: Callable[[int, int, Measured], None],
    cancel: Cancel | None = None,
) -> Measured:
    """Score all quants on at most `limit` chunks, 0 for all; `step` is told chunks done and all.

    Raises `UsageError` if the text is too short or a vocabulary differs, `EngineStartFailed`,
    `QuantError` if the base fails, `Cancelled`.
    """
    cancel = cancel or threading.Event()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        text = folder / "text"
        text.write_bytes(corpus.text.encode())
        whole = Pass(base, shape, folder / "base", text, corpus.parse_special, cancel)
        stack.callback(whole.end)
        chunks = _chunks(whole.tokens, shape, limit)
        found = Measured(len(chunks))
        passes: dict[int, Pass] = {}
        for number, path in enumerate(quants):
            one = Pass(path, shape, folder / f"q{number}", None, False, cancel)
            stack.callback(one.end)
            _same_vocabulary(path, whole, one)
            if one.bos != whole.bos:
                found.notices.append(f"{path.name} has another BOS rule; the base's is used.")
            passes[number], found.scores[number] = one, []
        for start in range(0, len(chunks), shape.sequences):
            group = chunks[start : start + shape.sequences]
            _group(whole, passes, group, start, shape, found)
            step(start + len(group), len(chunks), found)
        return found


def _group(
    base: Pass,
    passes: dict[int, Pass],
    group: list[list[int]],
    start: int,
    shape: Shape,
    found: Measured,
) -> None:
    fed = group if base.bos is None else [[base.bos, *chunk[1:]] for chunk in group]
    targets = [np.array(chunk[shape.first + 1 :], np.int32) for chunk in group]
    rows = base.logits(fed)
    if problem := _problem(rows, start, shape):
        raise QuantError(f"The base's logits are not finite: {problem}.")
    packed = [pack(one) for one in rows]
    found.floor += _scored(rows, packed, targets, shape)
    for number, one in list(passes.items()):
        try:
            rows = one.logits(fed)
            problem = _problem(rows, start, shape)
        except PassFailed as failure:
            problem = str(failure)
        if problem:
            found.problems[number] = problem
            del passes[number], found.scores[number]
            one.end()
            continue
        found.scores[number] += _scored(rows, packed, targets, shape)


def _scored(
    rows: list[Values], packed: list[Packed], targets: list[Tokens], shape: Shape
) -> list[Scores]:
    return [score(r, p, t, shape.threads) for r, p, t in zip(rows, packed, targets, strict=True)]


def _problem(rows: list[Values], start: int, shape: Shape) -> str:
    for number, one in enumerate(rows, start + 1):
        if (row := not_finite(one)) is not None:
            return f"not finite in chunk {number} at position {shape.first + row}"
    return ""


def _chunks(tokens: list[int], shape: Shape, limit: int) -> list[list[int]]:
    if len(tokens) < 2 * shape.n_ctx:
        raise UsageError(
            f"The text has {len(tokens)} tokens and needs {2 * shape.n_ctx}; take a longer one."
        )
    count = len(tokens) // shape.n_ctx
    count = min(count, limit) if limit else count
    return [tokens[at * shape.n_ctx : (at + 1) * shape.n_ctx] for at in range(count)]


def _same_vocabulary(path: Path, base: Pass, quant: Pass) -> None:
    for token, (first, second) in enumerate(zip_longest(base.texts, quant.texts)):
        if first != second:
            raise UsageError(
                f"{path.name} has another vocabulary than the base: token {token} differs; "
                "name quants of this base."
            )
