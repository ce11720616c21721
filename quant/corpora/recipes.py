"""Recipes for well-known texts, and following them through the Hugging Face hub."""

from __future__ import annotations

import hashlib
import os
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Protocol

from quant.corpora.corpora import Source
from veriloop_tui.errors import CorpusInvalid, UsageError

_FILE: Final = Path(__file__).with_name("recipes.toml")
_MAX_BYTES: Final = 1 << 30
_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Recipe:
    """One file of a data set on the hub; `member` names what is wanted out of an archive."""

    name: str
    about: str
    repo: str
    file: str
    licence: str
    member: str = ""


class Download(Protocol):
    """Whatever brings a file of a data set to the disk."""

    def __call__(self, repo: str, file: str) -> Path:
        """The file's path. Raises `UsageError`."""
        ...


def read_recipes() -> tuple[Recipe, ...]:
    """All recipes that ship with the program."""
    listed = tomllib.loads(_FILE.read_text(encoding="utf-8"))["recipe"]
    return tuple(Recipe(**one) for one in listed)


def find_recipe(name: str) -> Recipe:
    """The recipe of a name. Raises `UsageError`."""
    recipes = {recipe.name: recipe for recipe in read_recipes()}
    if name not in recipes:
        raise UsageError(f"There is no recipe '{name}'; use one of {', '.join(recipes)}.")
    return recipes[name]


def fetch(recipe: Recipe, target: Path, download: Download) -> Source:
    """Write what a recipe is for to `target`, whole or not at all.

    Raises `UsageError`, `CorpusInvalid`.
    """
    if target.exists():
        raise UsageError(f"{target} exists already; name another file with --out.")
    got = download(recipe.repo, recipe.file)
    digest = hashlib.sha256()
    part = target.with_name(target.name + ".part")
    try:
        with part.open("wb") as out:
            for piece in _pieces(got, recipe.member):
                digest.update(piece)
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
        part.replace(target)
    except OSError as problem:
        raise UsageError(f"{target} cannot be written: {problem.strerror}.") from problem
    finally:
        part.unlink(missing_ok=True)
    return Source(target.name, digest.hexdigest())


def from_hub(repo: str, file: str) -> Path:
    """Download through huggingface-hub into its cache, or find it there. Raises `UsageError`."""
    import httpx
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(repo, file, repo_type="dataset"))
    except (HfHubHTTPError, LocalEntryNotFoundError, httpx.HTTPError, OSError) as problem:
        raise UsageError(f"{file} of {repo} could not be downloaded: {problem}") from problem


def _pieces(path: Path, member: str) -> Iterator[bytes]:
    """The bytes of a file, or of one member of an archive that it is, which may be no bomb."""
    try:
        with ExitStack() as opened:
            if member:
                archive = opened.enter_context(zipfile.ZipFile(path))
                file: IO[bytes] = opened.enter_context(archive.open(member))
            else:
                file = opened.enter_context(path.open("rb"))
            total = 0
            while piece := file.read(_PIECE):
                total += len(piece)
                if total > _MAX_BYTES:
                    raise CorpusInvalid(str(path), "it is larger than 1 GiB")
                yield piece
    except (zipfile.BadZipFile, KeyError) as problem:
        raise CorpusInvalid(str(path), f"{member} cannot be taken out of it ({problem})") from None
