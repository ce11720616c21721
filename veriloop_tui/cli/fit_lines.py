"""What is known of a model, and how it fits, as lines of text: sizes first, names second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from veriloop_tui.core.excerpt import one_line
from veriloop_tui.wiring.fit import Fitted
from veriloop_tui.wiring.inspect import Inspected

_SHOWN_TYPES = 8


def inspected_lines(found: Inspected) -> Iterator[str]:
    """One screen about a model."""
    facts, sizes, layers = found.facts, found.facts.sizes, found.facts.layers
    yield (
        f"size       {_size(facts.file_size)}, {sizes.bpw:.2f} bits per weight over all; "
        f"{sizes.bpw_trunk:.2f} without draft layers, {sizes.bpw_body:.2f} without embeddings "
        "and output too"
    )
    yield f"name       {one_line(facts.name, 80)} {one_line(facts.quant, 20)}".rstrip()
    where = " (only its header was fetched)" if found.remote else ""
    parts = f", {len(facts.parts)} parts" if len(facts.parts) > 1 else ""
    yield f"file       {one_line(facts.path, 300)}{parts}{where}"
    yield f"weights    {_count(facts.parameters)}, architecture {facts.architecture}"
    if sizes.experts:
        yield (
            f"experts    {sizes.experts_used} of {sizes.experts} used; a token reads "
            f"{_size(sizes.active_size)}, {_count(sizes.active_elements)} weights"
        )
    yield f"blocks     {facts.block_count}, {_kinds(found)}"
    if layers.window:
        yield f"window     {layers.window:,} tokens in the sliding ones"
    heads, keys = max(facts.heads), max(facts.kv_heads)
    yield f"width      {facts.widths.model:,}; {heads} heads, {keys} for keys and values"
    yield f"context    {facts.context_length:,} tokens, {facts.vocabulary_size:,} in the vocabulary"
    if facts.nextn_predict_layers:
        only = ", and nothing else: give it beside its model" if facts.draft_head_only else ""
        mtp = f"{facts.nextn_predict_layers} layers (MTP), {_size(sizes.draft_size)}"
        yield f"draft      {mtp}{only}"
    yield f"template   {f'sha256 {facts.template_hash[:16]}' if facts.chat_template else 'none'}"
    for share in sizes.types[:_SHOWN_TYPES]:
        percent = share.size / sizes.size if sizes.size else 0.0
        yield (
            f"  {share.type_name:<9}{share.tensors:>5} tensors {share.elements / 1e6:>11,.1f} M "
            f"{_size(share.size):>11} {percent:>6.1%}"
        )
    if len(sizes.types) > _SHOWN_TYPES:
        yield f"  and {len(sizes.types) - _SHOWN_TYPES} more types"
    for suspicion in found.suspicions:
        yield f"warning    the chat template: {suspicion}"
    if found.unloadable and not facts.draft_head_only:
        yield f"warning    it cannot be loaded: {found.unloadable}"


def fitted_lines(found: Fitted) -> Iterator[str]:
    """A fit: yes or no, what goes where, and why."""
    fit = found.fit
    facts, plan = fit.facts, fit.plan
    yield (
        f"{'fits' if fit.fits else 'too large':<11}{_size(facts.file_size)}, "
        f"{facts.bpw:.2f} bits per weight, {one_line(facts.name, 80)}"
    )
    for device, use in zip(fit.devices, fit.uses, strict=True):
        yield (
            f"{one_line(device.name, 10):<11}{_size(use.total)} of {_size(device.free)} free: "
            f"weights {_size(use.weights)}, context {_size(use.context)}, "
            f"computing {_size(use.compute)}"
        )
    yield f"           {'as llama.cpp reserves it' if fit.confirmed else 'by formulas'}"
    if len(fit.devices) > 1:
        yield f"layers     {plan.gpu_layers} of {len(facts.layers.blocks) + 1} on a GPU"
    yield (
        f"context    {plan.n_ctx:,} tokens, keys {plan.type_k}, values {plan.type_v}, "
        f"{plan.sequences} at once"
    )
    yield f"draft      {'with the draft head' if fit.has_head else 'no draft head'}"
    most = ", ".join(
        f"{n_ctx:,} in {one}" if n_ctx else f"none in {one}" for one, n_ctx in found.contexts
    )
    yield f"at most    {most}"
    for reason in fit.reasons:
        yield f"           {reason}"
    for notice in found.notices:
        yield f"notice     {one_line(notice, 500)}"


def inspected_document(found: Inspected) -> dict[str, object]:
    """The same for programs; the template by its hash only."""
    facts = found.facts
    told = {field.name: getattr(facts, field.name) for field in fields(facts)}
    del told["chat_template"]
    return told | {
        "file_size": facts.file_size,
        "parameters": facts.parameters,
        "bpw": facts.bpw,
        "template_hash": facts.template_hash,
        "draft_head_only": facts.draft_head_only,
        "remote": found.remote,
        "unloadable": found.unloadable,
        "warnings": found.suspicions,
    }


def fitted_document(found: Fitted) -> dict[str, object]:
    """The same for programs; sizes in bytes."""
    fit = found.fit
    return {
        "model": fit.facts.path,
        "file_size": fit.facts.file_size,
        "bpw": fit.facts.bpw,
        "name": fit.facts.name,
        "fits": fit.fits,
        "by_llama_cpp": fit.confirmed,
        "plan": fit.plan,
        "draft_head": fit.has_head,
        "devices": fit.devices,
        "uses": fit.uses,
        "largest_n_ctx": dict(found.contexts),
        "reasons": fit.reasons,
        "notices": found.notices,
    }


def _kinds(found: Inspected) -> str:
    trunk = found.facts.layers.trunk
    full = sum(bool(block.key_width) and not block.sliding for block in trunk)
    sliding = sum(bool(block.key_width) and block.sliding for block in trunk)
    recurrent = sum(bool(block.state_width) for block in trunk)
    kinds = {"with full attention": full, "with a sliding window": sliding, "recurrent": recurrent}
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count) or "none attends"


def _count(count: int) -> str:
    return f"{count / 1e9:.2f} billion" if count >= 1e9 else f"{count / 1e6:.1f} million"


def _size(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
