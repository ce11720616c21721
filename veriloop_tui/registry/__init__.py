"""Models by name: what `models.toml` says, which files a repository has, what is on this disk.

A reference is a path, `NAME[:QUANT]`, or `hf:OWNER/REPO[:QUANT]`. Only `hub` uses the network.
"""

from __future__ import annotations

from veriloop_tui.registry.files import Choice, Listing, RepoFile, choices, quant_of
from veriloop_tui.registry.resolve import LocalModel, cached_drafts, draft_of, resolve
from veriloop_tui.registry.spec import (
    ModelSpec,
    QuantFacts,
    SamplingFacts,
    read_registry,
    registry_file,
)

__all__ = [
    "Choice",
    "Listing",
    "LocalModel",
    "ModelSpec",
    "QuantFacts",
    "RepoFile",
    "SamplingFacts",
    "cached_drafts",
    "choices",
    "draft_of",
    "quant_of",
    "read_registry",
    "registry_file",
    "resolve",
]
