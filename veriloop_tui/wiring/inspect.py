"""What is known of a model before it is loaded, or even downloaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from veriloop_tui import registry
from veriloop_tui.engine.gguf.facts import GGUFFacts, check_loadable, read_facts
from veriloop_tui.engine.gguf.remote import Access, RemoteModel, read_remote
from veriloop_tui.errors import ModelFileInvalid, ModelNotFound
from veriloop_tui.registry import hub
from veriloop_tui.registry.files import Choice
from veriloop_tui.registry.resolve import HubRef, parse_ref, wanted_quant


@dataclass(frozen=True, slots=True)
class Inspected:
    """A model's facts; `remote` where only its header was fetched.

    `unloadable` says why llama.cpp would not run it, empty if nothing speaks against it;
    `suspicions` are about its chat template.
    """

    facts: GGUFFacts
    remote: bool
    unloadable: str
    suspicions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A model's headers: of a file on this disk, or the bytes of one that is not."""

    facts: GGUFFacts
    there: RemoteModel | None


def inspect(ref: str) -> Inspected:
    """What the header of a model says. Raises `ModelNotFound`, `ModelFileInvalid`,
    `DownloadFailed`."""
    from veriloop_tui.engine.gguf.suspicions import suspicions

    found = find(ref)
    try:
        check_loadable(found.facts)
        problem = ""
    except ModelFileInvalid as refused:
        problem = refused.problem
    return Inspected(
        found.facts, found.there is not None, problem, suspicions(found.facts.chat_template)
    )


def find(ref: str, *, draft: bool = False) -> Found:
    """The headers that `ref` means, a draft head's if `draft`.

    An http(s) address, a path, or a reference as `registry.resolve` takes it; what is not on this
    disk is asked of the hub. Raises `ModelNotFound`, `ModelFileInvalid`, `DownloadFailed`.
    """
    if ref.startswith(("http://", "https://")):
        return _remote(ref)
    known = registry.read_registry(registry.registry_file())
    at = parse_ref(ref, known)
    if not isinstance(at, HubRef):
        return _local(registry.resolve(ref, known).path)
    if draft:
        heads = registry.cached_drafts(at.repo, at.spec)
        return _local(heads[-1]) if heads else _on_hub(ref, at, draft)
    try:
        return _local(registry.resolve(ref, known).path)
    except ModelNotFound:
        return _on_hub(ref, at, draft)


def _local(path: Path) -> Found:
    return Found(read_facts(path), None)


def _on_hub(ref: str, at: HubRef, draft: bool) -> Found:
    from huggingface_hub import hf_hub_url

    revision = hub.list_files(at.repo)
    listing = registry.choices(revision.files, at.drafts)
    if draft:
        offered = [one for one in listing.drafts if one.whole]
    else:
        quant = wanted_quant(at, listing, ref)
        offered = [one for one in listing.models if one.whole and one.quant == quant]
    if not offered:
        there = ", ".join(dict.fromkeys(one.quant for one in _of(listing, draft))) or "none"
        what = "whole draft heads" if draft else "whole GGUF files"
        raise ModelNotFound(ref, f"Of {what} its repository offers {there}.")
    name = offered[0].files[0].name
    return _remote(hf_hub_url(at.repo, name, revision=revision.commit))


def _of(listing: registry.Listing, draft: bool) -> tuple[Choice, ...]:
    return listing.drafts if draft else listing.models


def _remote(url: str) -> Found:
    from huggingface_hub import constants, get_token

    there = read_remote(url, Access(constants.ENDPOINT.rstrip("/"), get_token() or ""))
    return Found(there.facts, there)
