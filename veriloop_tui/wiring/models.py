"""Models by name: what is known, what is on this disk, and fetching what is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from veriloop_tui import registry
from veriloop_tui.errors import ModelNotFound, UsageError
from veriloop_tui.registry import hub
from veriloop_tui.registry.files import Choice, Listing, choices
from veriloop_tui.registry.resolve import HubRef, cached_choices, parse_ref, wanted_quant


@dataclass(frozen=True, slots=True)
class Known:
    """One model of the registry; `here` are the quants of it that are whole on this disk."""

    name: str
    title: str
    kind: str
    parameters: str
    memory_gb: int | None
    default_quant: str
    licence: str
    source: str
    here: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Offered:
    """One file, or set of shards, of a repository."""

    quant: str
    size: int
    names: tuple[str, ...]
    draft: bool
    whole: bool
    here: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a pull would fetch: files, bytes of all of them, and bytes still to come."""

    revision: hub.Revision
    files: tuple[registry.RepoFile, ...]
    size: int
    missing: int
    free: int


@dataclass(frozen=True, slots=True)
class Checked:
    """One local file against what the hub publishes."""

    name: str
    ok: bool
    problem: str


def known() -> tuple[Known, ...]:
    """All models of the registry."""
    return tuple(_known(spec) for spec in _registry().values())


def details(name: str) -> registry.ModelSpec:
    """All that the registry knows of one model. Raises `ModelNotFound`."""
    found = _registry().get(name)
    if found is None:
        raise ModelNotFound(name, f"Known names are {', '.join(_registry())}.")
    return found


def files(ref: str) -> tuple[Offered, ...]:
    """What the repository of a reference offers. Raises `ModelNotFound`, `DownloadFailed`."""
    at = _hub_ref(ref)
    listing = choices(hub.list_files(at.repo).files, at.drafts)
    local, _ = cached_choices(at)
    return (*_offered(listing.models, local, False), *_offered(listing.drafts, local, True))


def wanted(ref: str, *, draft: bool) -> Wanted:
    """What a pull of `ref`, and of its draft head if `draft`, has to fetch.

    Raises `ModelNotFound`, `DownloadFailed`.
    """
    at = _hub_ref(ref)
    revision = hub.list_files(at.repo)
    listing = choices(revision.files, at.drafts)
    chosen = [_chosen(ref, at, listing)]
    if draft:
        if not listing.drafts:
            raise ModelNotFound(ref, "The repository has no separate draft head.")
        chosen.append(listing.drafts[-1])
    wanted_files = tuple(file for choice in chosen for file in choice.files)
    missing = hub.missing_bytes(revision, wanted_files)
    size = sum(file.size for file in wanted_files)
    return Wanted(revision, wanted_files, size, missing, hub.cache_free())


def pull(what: Wanted, progress: hub.Progress, cancelled: Callable[[], bool]) -> tuple[Path, ...]:
    """Fetch it all; the paths in the cache. Raises `DownloadFailed`, `Cancelled`."""
    hub.check_room(what.files, what.missing, what.free)
    return tuple(hub.fetch(what.revision, file, progress, cancelled) for file in what.files)


def remove(ref: str) -> int:
    """Delete the local files of a reference; the bytes that became free. Raises `ModelNotFound`."""
    at = _hub_ref(ref)
    local, _ = cached_choices(at)
    quant = wanted_quant(at, local, ref)
    chosen = [choice for choice in local.models if choice.quant == quant]
    if not chosen:
        raise ModelNotFound(ref, "There is nothing to remove.")
    return hub.remove(at.repo, tuple(file.name for one in chosen for file in one.files))


def verify(ref: str) -> tuple[Checked, ...]:
    """Check the local files of a reference. Raises `ModelNotFound`, `DownloadFailed`."""
    at = _hub_ref(ref)
    local, paths = cached_choices(at)
    quant = wanted_quant(at, local, ref)
    chosen = [choice for choice in local.models if choice.quant == quant]
    chosen += local.drafts
    if not chosen:
        raise ModelNotFound(ref, f"`veriloop models pull {ref}` fetches it.")
    published = {file.name: file.sha256 for file in hub.list_files(at.repo).files}
    return tuple(
        _checked(file.name, paths[file.name], published.get(file.name, ""))
        for choice in chosen
        for file in choice.files
    )


def _checked(name: str, path: Path, sha256: str) -> Checked:
    if not sha256:
        return Checked(name, False, "the hub does not publish this file any more")
    if hub.verify(path, sha256):
        return Checked(name, True, "")
    return Checked(name, False, "its bytes are not the published ones; remove it and pull again")


def _chosen(ref: str, at: HubRef, listing: Listing) -> Choice:
    quant = wanted_quant(at, listing, ref)
    found = [choice for choice in listing.models if choice.quant == quant and choice.whole]
    if found:
        return found[0]
    offered = ", ".join(dict.fromkeys(choice.quant for choice in listing.models)) or "no GGUF file"
    raise ModelNotFound(ref, f"Its repository offers {offered}.")


def _offered(of: tuple[Choice, ...], local: Listing, draft: bool) -> tuple[Offered, ...]:
    here = {one.files[0].name for one in (*local.models, *local.drafts) if one.whole}
    return tuple(
        Offered(
            quant=one.quant,
            size=one.size,
            names=tuple(file.name for file in one.files),
            draft=draft,
            whole=one.whole,
            here=one.files[0].name in here,
        )
        for one in of
    )


def _known(spec: registry.ModelSpec) -> Known:
    if spec.package:
        here, source = _in_package(spec), f"the package {spec.package.replace('_', '-')}"
    else:
        local, _ = cached_choices(HubRef(spec.repo, "", spec))
        here = tuple(choice.quant for choice in local.models if choice.whole)
        source = f"hf:{spec.repo}"
    return Known(
        name=spec.name,
        title=spec.title,
        kind=spec.kind,
        parameters=spec.parameters,
        memory_gb=spec.memory_gb,
        default_quant=spec.default_quant,
        licence=spec.licence,
        source=source,
        here=here,
    )


def _in_package(spec: registry.ModelSpec) -> tuple[str, ...]:
    try:
        return (registry.resolve(spec.name, _registry()).quant,)
    except ModelNotFound:
        return ()


def _hub_ref(ref: str) -> HubRef:
    found = parse_ref(ref, _registry())
    if isinstance(found, HubRef):
        return found
    if isinstance(found, registry.ModelSpec):
        raise UsageError(f"{ref} comes with a Python package, not from the hub.")
    raise ModelNotFound(ref, f"Known names are {', '.join(_registry())}; or hf:OWNER/REPO[:QUANT].")


def _registry() -> dict[str, registry.ModelSpec]:
    return dict(registry.read_registry(registry.registry_file()))
