"""The texts that quants are measured on.

A corpus is plain text, code, or conversations rendered through the base's own chat template. In
text and code the model's special tokens are just characters, as in llama-perplexity; in rendered
conversations they are tokens, and that is recorded with every result.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from veriloop_tui.errors import CorpusInvalid

Kind = Literal["text", "code", "chat"]

_FOLDER: Final = Path(__file__).parent / "corpus"
SHIPPED: Final[dict[str, tuple[Kind, Path]]] = {
    "prose": ("text", _FOLDER / "prose.txt"),
    "code": ("code", _FOLDER / "code.txt"),
    "chat": ("chat", _FOLDER / "chat.jsonl"),
}
_CODE_ENDINGS: Final = frozenset(
    f".{ending}"
    for ending in (
        *("c", "cc", "cpp", "cs", "go", "h", "hpp", "java", "js", "kt", "lua", "php", "py"),
        *("rb", "rs", "sh", "sql", "swift", "ts"),
    )
)
_CHAT_ENDINGS: Final = frozenset({".jsonl"})
_MAX_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Source:
    """A file that a corpus came from: its name and the sha256 of its bytes."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """A text to measure on.

    `parse_special` says whether special tokens written in the text become tokens.
    """

    name: str
    kind: Kind
    text: str
    parse_special: bool
    sources: tuple[Source, ...]

    @property
    def sha256(self) -> str:
        """The sha256 of the text as it is tokenised."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def kind_of(path: Path) -> Kind:
    """What a file holds, by its ending."""
    if path.suffix.lower() in _CHAT_ENDINGS:
        return "chat"
    return "code" if path.suffix.lower() in _CODE_ENDINGS else "text"


def read_text(path: Path, kind: Kind = "text", name: str = "") -> Corpus:
    """A file of text or code. Raises `CorpusInvalid`.

    One line end at the very end is left out, as llama-perplexity does, so that both see the same.
    """
    text, source = read_source(path)
    return Corpus(name or path.name, kind, text.removesuffix("\n"), False, (source,))


def read_source(path: Path) -> tuple[str, Source]:
    """A file's text, exactly, and what it was. Raises `CorpusInvalid`."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as problem:
        raise CorpusInvalid(str(path), problem.strerror or str(problem)) from problem
    if len(data) > _MAX_BYTES:
        raise CorpusInvalid(str(path), "it is larger than 1 GiB; take a part of it")
    if not data.strip():
        raise CorpusInvalid(str(path), "it holds no text")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        where = f"byte {problem.start} is not UTF-8"
        raise CorpusInvalid(str(path), f"{where}; convert it first") from None
    return text, Source(path.name, hashlib.sha256(data).hexdigest())
