"""What takes part in a study: models, texts and vocabularies, held against each other."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from quant.corpora.chat import open_corpus
from quant.corpora.corpora import Corpus
from quant.inspecting.read import ModelFiles, read_model
from quant.losses.scoring import Tokens
from quant.study.study import Study
from quant.study.vocabulary import (
    Backend,
    Vocabulary,
    check_tokens,
    common_size,
    read_vocabulary,
)
from veriloop_tui.core.excerpt import one_line
from veriloop_tui.core.ports import Cancel
from veriloop_tui.engine.gguf.facts import file_digest
from veriloop_tui.errors import ModelFileInvalid, UsageError


@dataclass(frozen=True, slots=True)
class Competitor:
    """A model. `sha256` is over the bytes of all its files; `key` what reports call it by, the
    digest that tasks know it by, too, unless another model of the study has the same."""

    files: ModelFiles
    sha256: str
    key: str

    @property
    def name(self) -> str:
        """A label."""
        return self.files.name


@dataclass(frozen=True, slots=True)
class Contest:
    """All that takes part. `tokens` are those of each corpus, by the base's tokeniser; `bos` is
    decoded in place of the first token of each chunk unless it is `None`; the first `vocabulary`
    tokens are what all models have."""

    base: Competitor
    quants: tuple[Competitor, ...]
    corpora: tuple[Corpus, ...]
    tokens: tuple[Tokens, ...]
    bos: int | None
    vocabulary: int
    backend: Backend
    notices: tuple[str, ...]


def open_contest(study: Study, cancel: Cancel) -> Contest:
    """Read all models and texts of a study.

    Raises `ModelNotFound`, `ModelFileInvalid`, `CorpusInvalid`, `VocabularyDiffers`, `UsageError`,
    `EngineStartFailed`, `Cancelled`.
    """
    models = [read_model(path) for path in (study.base, *study.quants)]
    corpora = tuple(open_corpus(ref, study.base, cancel) for ref in study.corpora)
    for at, one in enumerate(corpora):
        if any(one.sha256 == other.sha256 for other in corpora[:at]):
            raise UsageError(f"The text of {one.name} is named twice; name each text once.")
    with ThreadPoolExecutor() as pool:
        reading = [
            pool.submit(read_vocabulary, model.paths[0], corpora, cancel) for model in models
        ]
        base, *quants = _competitors(models, list(pool.map(_sha256, models)))
        whole, *vocabularies = [one.result() for one in reading]
    size, notices = len(whole.entries), []
    for quant, mine in zip(quants, vocabularies, strict=True):
        size = min(size, common_size(whole.entries, mine.entries, quant.name))
        check_tokens(whole, mine, quant.name)
        notices += _differences(whole, mine, one_line(quant.name, 100))
    return Contest(
        base=base,
        quants=tuple(quants),
        corpora=corpora,
        tokens=whole.whole,
        bos=whole.bos,
        vocabulary=size,
        backend=whole.backend,
        notices=tuple(notices),
    )


def _competitors(models: Sequence[ModelFiles], hashes: Sequence[str]) -> list[Competitor]:
    digests = [file_digest(model.facts) for model in models]
    for at, one in enumerate(hashes[1:], 1):
        if one in hashes[1:at]:
            raise UsageError(f"{models[at].name} is named twice; name each quant once.")
    # The digest reads the ends of the weights only; what differs in the middle alone shares it.
    many = Counter(dict(zip(hashes, digests, strict=True)).values())
    return [
        Competitor(model, whole, digest if many[digest] == 1 else whole)
        for model, whole, digest in zip(models, hashes, digests, strict=True)
    ]


def _sha256(model: ModelFiles) -> str:
    whole = hashlib.sha256()
    for path in model.paths:
        whole.update(_file_sha256(path))
    return whole.hexdigest()


def _file_sha256(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as problem:
        raise ModelFileInvalid(str(path), problem.strerror or str(problem)) from problem


def _differences(base: Vocabulary, quant: Vocabulary, name: str) -> list[str]:
    found = []
    if quant.bos != base.bos:
        found.append(f"{name} has another rule for a first token (BOS); the base's is used.")
    mine, its = len(quant.entries), len(base.entries)
    if mine != its:
        found.append(
            f"{name} has {mine:,} tokens and the base {its:,}; those that only fill up are left "
            "out, and numbers are over the tokens that both have."
        )
    return found
