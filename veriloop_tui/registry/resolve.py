"""Where a reference's file is on this disk. Nothing here uses the network."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veriloop_tui.errors import ModelNotFound
from veriloop_tui.registry.files import Choice, Listing, RepoFile, choices, quant_of
from veriloop_tui.registry.spec import ModelSpec

_HUB_REF: Final = re.compile(r"hf:([\w.-]+/[\w.-]+?)(?::([\w.-]+))?", re.ASCII)
_NAME_REF: Final = re.compile(r"([\w.-]+?)(?::([\w.-]+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A reference resolved to a file; `spec` is `None` for a model the registry does not know.

    Of a sharded model `path` is the first shard.
    """

    ref: str
    path: Path
    quant: str
    spec: ModelSpec | None
    repo: str = ""


@dataclass(frozen=True, slots=True)
class HubRef:
    """A reference to files of a Hugging Face repository; an empty quant means the default one."""

    repo: str
    quant: str
    spec: ModelSpec | None

    @property
    def drafts(self) -> tuple[str, ...]:
        """Name patterns of the repository's draft heads."""
        return self.spec.drafts if self.spec is not None else ()


def parse_ref(ref: str, registry: Mapping[str, ModelSpec]) -> HubRef | ModelSpec | Path:
    """What a reference is: files on the hub, a model in a Python package, or a path.

    Raises `ModelNotFound` for a hub reference that is not written as one.
    """
    if ref.startswith("hf:"):
        found = _HUB_REF.fullmatch(ref)
        if found is None:
            raise ModelNotFound(ref, "Write it as hf:OWNER/REPO or hf:OWNER/REPO:QUANT.")
        spec = next((s for s in registry.values() if s.repo == found[1]), None)
        return HubRef(found[1], (found[2] or "").upper(), spec)
    named = _NAME_REF.fullmatch(ref)
    if named is not None and (spec := registry.get(named[1])):
        return spec if spec.package else HubRef(spec.repo, (named[2] or "").upper(), spec)
    return Path(ref).expanduser()


def resolve(
    ref: str, registry: Mapping[str, ModelSpec], hub_cache: Path | None = None
) -> LocalModel:
    """The file that `ref` means. `hub_cache` is the Hugging Face cache, `None` for the usual one.

    Raises `ModelNotFound`, which names the command that fetches what is missing.
    """
    match parse_ref(ref, registry):
        case HubRef() as hub:
            return _from_hub(ref, hub, hub_cache)
        case ModelSpec() as spec:
            return _from_package(ref, spec)
        case Path() as path:
            return _from_path(ref, path, registry)


def draft_of(
    model: LocalModel, ref: str, registry: Mapping[str, ModelSpec], hub_cache: Path | None = None
) -> Path | None:
    """The draft head for a model: the one that `ref` names, or of an empty one the cached one.

    `None` if nothing was asked for and nothing is there. Raises `ModelNotFound` for a `ref` that
    names no file.
    """
    if not ref:
        found = cached_drafts(model.repo, model.spec, hub_cache) if model.repo else ()
        return found[-1] if found else None
    match parse_ref(ref, registry):
        case HubRef() as hub:
            heads = [
                path
                for path in cached_drafts(hub.repo, hub.spec, hub_cache)
                if not hub.quant or quant_of(path.name) == hub.quant
            ]
            if not heads:
                raise ModelNotFound(ref, f"`veriloop models pull {ref} --draft` fetches its head.")
            return heads[-1]
        case ModelSpec():
            raise ModelNotFound(ref, "It has no draft head; give the path of one.")
        case Path() as path:
            return _from_path(ref, path, registry).path


def cached_drafts(
    repo: str, spec: ModelSpec | None, hub_cache: Path | None = None
) -> tuple[Path, ...]:
    """The whole draft heads of a repository that are on this disk, the smallest first."""
    files = dict(cached_files(repo, hub_cache))
    patterns = spec.drafts if spec is not None else ()
    return tuple(
        files[choice.files[0].name] for choice in _listing(files, patterns).drafts if choice.whole
    )


def cached_choices(hub: HubRef, hub_cache: Path | None = None) -> tuple[Listing, dict[str, Path]]:
    """What of a repository is on this disk, and the path of each of its files."""
    files = dict(cached_files(hub.repo, hub_cache))
    return _listing(files, hub.drafts), files


def wanted_quant(hub: HubRef, listing: Listing, ref: str) -> str:
    """The quant that is meant: the one named, the registry's default, or the only one there is.

    Raises `ModelNotFound` where there are several and none is meant.
    """
    wanted = hub.quant or (hub.spec.default_quant.upper() if hub.spec is not None else "")
    there = {choice.quant for choice in listing.models}
    if not wanted and len(there) > 1:
        listed = ", ".join(sorted(there))
        raise ModelNotFound(ref, f"Of it there are {listed}: say which, as {ref}:QUANT.")
    return wanted or next(iter(there), "")


def _listing(files: Mapping[str, Path], patterns: Iterable[str]) -> Listing:
    return choices((RepoFile(name, _size(path)) for name, path in files.items()), patterns)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _from_path(ref: str, path: Path, registry: Mapping[str, ModelSpec]) -> LocalModel:
    if path.is_file():
        return LocalModel(ref, path.resolve(), quant_of(path.name), None)
    if ref and path.is_dir():
        raise ModelNotFound(ref, "It is a folder; name the GGUF file in it.")
    if path.suffix == ".gguf" or "/" in ref:
        raise ModelNotFound(ref, "There is no such file; give the path of a GGUF file.")
    known = ", ".join(registry)
    raise ModelNotFound(
        ref, f"Known names are {known}; or give a path to a GGUF file, or hf:OWNER/REPO[:QUANT]."
    )


def _from_package(ref: str, spec: ModelSpec) -> LocalModel:
    # find_spec does not import a top-level package, so nothing of it runs.
    module = importlib.util.find_spec(spec.package)
    folders = module.submodule_search_locations if module is not None else None
    files = [path for folder in folders or () for path in sorted(Path(folder).glob(spec.file))]
    _, _, quant = ref.partition(":")
    wanted = (quant or spec.default_quant).upper()
    for path in files:
        if quant_of(path.name) == wanted:
            return LocalModel(ref, path, wanted, spec)
    if files:
        there = ", ".join(quant_of(path.name) for path in files)
        raise ModelNotFound(ref, f"The installed package has {there}.")
    package = spec.package.replace("_", "-")
    raise ModelNotFound(ref, f"Install it with `python -m pip install {package}`.")


def _from_hub(ref: str, hub: HubRef, cache: Path | None) -> LocalModel:
    listing, files = cached_choices(hub, cache)
    wanted = wanted_quant(hub, listing, ref)
    for choice in listing.models:
        if choice.quant == wanted and choice.whole:
            return LocalModel(ref, files[_first(choice)], wanted, hub.spec, hub.repo)
    raise ModelNotFound(ref, f"`veriloop models pull {ref}` fetches it.")


def _first(choice: Choice) -> str:
    return choice.files[0].name


def cached_files(repo: str, cache: Path | None = None) -> list[tuple[str, Path]]:
    """Name in the repository and local path of each file, of the newest revision first."""
    # Imported here: it takes a quarter of a second, and most commands name no model.
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        info = scan_cache_dir(cache)
    except CacheNotFound:
        return []
    revisions = [
        revision
        for cached in info.repos
        if cached.repo_type == "model" and cached.repo_id == repo
        for revision in cached.revisions
    ]
    revisions.sort(key=lambda revision: ("main" in revision.refs, revision.last_modified))
    newest: dict[str, Path] = {}
    for revision in revisions:
        for file in revision.files:
            newest[str(file.file_path.relative_to(revision.snapshot_path))] = file.file_path
    return list(newest.items())
