"""Vocabularies of base and quants, held against each other before anything is measured."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from quant.corpora.corpora import Corpus
from quant.losses.scoring import Tokens
from quant.worker import Worker
from veriloop_tui.core.excerpt import one_line
from veriloop_tui.core.ports import Cancel
from veriloop_tui.errors import EngineStartFailed, VocabularyDiffers

_WORKER: Final = "quant.study.vocabulary_child"
# What converters fill a vocabulary up with, to the number of rows that the embeddings have.
_PADDING: Final = re.compile(rb"(\[PAD-?\d*\]|<pad-?\d*>|<\|?(extra|unused|reserved)[^>]*>)")
_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class TextOrder:
    """A file to make into tokens, special tokens in it parsed or not."""

    path: str
    special: bool


@dataclass(frozen=True, slots=True)
class Order:
    """What the process is to do: a model's vocabulary and tokens of texts, into a folder."""

    model: str
    texts: tuple[TextOrder, ...]
    out: str

    @classmethod
    def from_json(cls, line: str) -> Order:
        """An order as the process is given it."""
        values = json.loads(line)
        values["texts"] = tuple(TextOrder(**one) for one in values["texts"])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Entry:
    """One token: its text, and whether the vocabulary marks it as unused."""

    text: bytes
    unused: bool

    @property
    def padding(self) -> bool:
        """Whether it is only there to fill the vocabulary up."""
        return self.unused or _PADDING.fullmatch(self.text) is not None


@dataclass(frozen=True, slots=True)
class Backend:
    """What llama.cpp runs on: its devices, its words on the machine, its version."""

    devices: tuple[str, ...]
    system: str
    gpu: bool
    build: str


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A model's tokens, its rule for a first token (`None`: none is put in front), and texts.

    `whole` are the texts' tokens as the model takes them, `plain` without a first one.
    """

    backend: Backend

    entries: tuple[Entry, ...]
    bos: int | None
    whole: tuple[Tokens, ...]
    plain: tuple[Tokens, ...]


def read_vocabulary(model: Path, corpora: Sequence[Corpus], cancel: Cancel) -> Vocabulary:
    """Ask llama.cpp, in a process of its own. Raises `EngineStartFailed`, `Cancelled`."""
    with tempfile.TemporaryDirectory(prefix="veriloop-") as folder:
        out = Path(folder)
        orders = []
        for number, corpus in enumerate(corpora):
            path = out / f"text-{number}"
            path.write_bytes(corpus.text.encode())
            orders.append(TextOrder(str(path), corpus.parse_special))
        order = Order(str(model), tuple(orders), folder)
        worker = Worker(_WORKER, json.dumps(asdict(order)))
        lines = list(worker.lines(cancel))
        if worker.ending or not lines:
            problem = f"the vocabulary of {model.name} could not be read ({worker.ending})"
            raise EngineStartFailed(problem, worker.last_words)
        told: dict[str, Any] = json.loads(lines[-1])
        texts = (out / "vocabulary").read_text("ascii").splitlines()
        backend = told["backend"]
        return Vocabulary(
            Backend(**(backend | {"devices": tuple(backend["devices"])})),
            tuple(Entry(bytes.fromhex(one[1:]), one[0] == "1") for one in texts),
            told["bos"] if told["add_bos"] else None,
            tuple(np.load(out / f"whole-{at}.npy") for at in range(len(orders))),
            tuple(np.load(out / f"plain-{at}.npy") for at in range(len(orders))),
        )


def common_size(base: Sequence[Entry], quant: Sequence[Entry], name: str) -> int:
    """How many tokens both have, what is more in one being padding. Raises `VocabularyDiffers`."""
    size = min(len(base), len(quant))
    for token in range(size):
        if base[token].text != quant[token].text:
            mine, its = _shown(quant[token].text), _shown(base[token].text)
            raise VocabularyDiffers(name, f"token {token} is {mine}, in the base it is {its}")
    for owner, longer in (("the base", base), (name, quant)):
        for token in range(size, len(longer)):
            if not longer[token].padding:
                text = _shown(longer[token].text)
                raise VocabularyDiffers(name, f"token {token}, {text}, is only in {owner}")
    return size


def check_tokens(base: Vocabulary, quant: Vocabulary, name: str) -> None:
    """Refuse a model that cuts a text into other tokens. Raises `VocabularyDiffers`."""
    for mine, its in zip(quant.plain, base.plain, strict=True):
        same = min(len(mine), len(its))
        differing = np.flatnonzero(mine[:same] != its[:same])
        if differing.size or len(mine) != len(its):
            at = int(differing[0]) if differing.size else same
            raise VocabularyDiffers(
                name,
                f"its tokeniser cuts the text differently from token {at} on: "
                f"{_token(quant, mine, at)} in place of {_token(base, its, at)}",
            )


def _token(vocabulary: Vocabulary, tokens: Tokens, at: int) -> str:
    return _shown(vocabulary.entries[tokens[at]].text) if at < len(tokens) else "the end"


def _shown(text: bytes) -> str:
    return f"'{one_line(text.decode('utf-8', 'replace'), _SHOWN)}'"
