"""From a repository's list of files to the quants and draft heads in it. Pure.

Names are read, never made up: what a publisher calls a file decides, and shards count as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Final

# What publishers call separate draft heads, where the registry does not say.
USUAL_DRAFTS: Final = ("mtp-*", "*-mtp-head*", "*-draft-*", "draft-*")
_NOT_MODELS: Final = ("mmproj*", "*mmproj*", "*imatrix*")
_QUANT: Final = re.compile(
    r"(?:^|[-._])((?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_[A-Z]+)*|BF16|F16|F32))(?=[-.]|$)",
    re.IGNORECASE,
)
_SHARD: Final = re.compile(r"-(\d{5})-of-(\d{5})$")


@dataclass(frozen=True, slots=True)
class RepoFile:
    """One file of a repository: its path there, bytes, and sha256 (empty if not published)."""

    name: str
    size: int
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """One loadable thing: a single file, or all shards of one, the first of them first.

    `whole` says that no shard is missing.
    """

    quant: str
    files: tuple[RepoFile, ...]
    whole: bool

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Listing:
    """What a repository offers, the smallest first."""

    models: tuple[Choice, ...]
    drafts: tuple[Choice, ...]


def quant_of(file_name: str) -> str:
    """The quant that a GGUF's file name tells, empty if it tells none."""
    stem = _SHARD.sub("", PurePosixPath(file_name).name.removesuffix(".gguf"))
    found = _QUANT.findall(stem)
    return str(found[-1]).upper() if found else ""


def is_draft(name: str, patterns: Iterable[str]) -> bool:
    """Whether a file is a draft head by the registry's patterns, or by the usual ones."""
    base = PurePosixPath(name).name.lower()
    return any(fnmatchcase(base, pattern.lower()) for pattern in (*patterns, *USUAL_DRAFTS))


def choices(files: Iterable[RepoFile], drafts: Iterable[str] = ()) -> Listing:
    """Sort a repository's GGUF files into models and draft heads; the rest is left out."""
    groups: dict[str, list[RepoFile]] = {}
    for file in files:
        base = PurePosixPath(file.name).name
        if not base.endswith(".gguf") or any(fnmatchcase(base.lower(), p) for p in _NOT_MODELS):
            continue
        groups.setdefault(_SHARD.sub("", file.name.removesuffix(".gguf")), []).append(file)
    patterns = tuple(drafts)
    models: list[Choice] = []
    heads: list[Choice] = []
    for stem, members in groups.items():
        choice = _choice(stem, members)
        (heads if is_draft(members[0].name, patterns) else models).append(choice)
    return Listing(_by_size(models), _by_size(heads))


def _choice(stem: str, members: list[RepoFile]) -> Choice:
    single = next((file for file in members if file.name == f"{stem}.gguf"), None)
    if single is not None:
        return Choice(quant_of(stem), (single,), True)
    ordered = sorted(members, key=lambda file: file.name)
    count = max(int(_shard(file)[2]) for file in ordered)
    wanted = [f"{stem}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]
    return Choice(quant_of(stem), tuple(ordered), wanted == [file.name for file in ordered])


def _shard(file: RepoFile) -> re.Match[str]:
    found = _SHARD.search(file.name.removesuffix(".gguf"))
    assert found is not None
    return found


def _by_size(found: list[Choice]) -> tuple[Choice, ...]:
    return tuple(sorted(found, key=lambda choice: (choice.size, choice.quant)))
