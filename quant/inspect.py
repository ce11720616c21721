"""What a model's bytes are spent on, from the headers of its files alone.

There is no one "bits per weight" (BPW): the usual one, 8 · bytes / weights over everything, counts
embeddings, which small models spend half their bytes on, and draft heads (MTP), which take no part
in plain decoding. So each number says what it is of.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from quant.inspect_read import ModelFiles, TensorBytes

_BLOCK: Final = re.compile(r"blk\.(\d{1,5})\.")
_EXPERTS: Final = re.compile(r"_(?:ch)?exps\b")
_EMBEDDINGS: Final = ("token_embd.", "per_layer_token_embd.")


class Role(StrEnum):
    """What a tensor is for, as far as sizes are concerned."""

    EMBEDDING = "embedding"
    OUTPUT = "output"
    EXPERTS = "experts"
    DRAFT_HEAD = "draft head"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class TypeShare:
    """All tensors of one type: how many, of how many weights and bytes."""

    type_name: str
    tensors: int
    elements: int
    size: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """A model's sizes; sizes in bytes, BPW in bits per weight.

    `bpw_all` is over all tensors, as llama.cpp counts; `bpw_trunk` leaves the draft head out, and
    divides by the base's weights where a base was given; `bpw_body` leaves embeddings and output
    out as well. `active_size` is what one generated token reads of a sparse model (experts used
    over experts there; of an embedding one row), `experts_used` 0 for a dense one.
    """

    name: str
    stated: str
    architecture: str
    file_size: int
    elements: int
    bpw_all: float
    bpw_trunk: float
    bpw_body: float
    draft_head_size: int
    active_size: int
    experts: int
    experts_used: int
    types: tuple[TypeShare, ...]


def inspect(model: ModelFiles, base: ModelFiles | None = None) -> Inspection:
    """The sizes of a model. `base` lends its trunk's number of weights for `bpw_trunk`."""
    role = roles(model)
    trunk = [one for one in model.tensors if role(one) is not Role.DRAFT_HEAD]
    body = [one for one in trunk if role(one) not in (Role.EMBEDDING, Role.OUTPUT)]
    weights = trunk if base is None else trunk_tensors(base)
    experts, used = model.whole("expert_count"), model.whole("expert_used_count")
    return Inspection(
        name=model.name,
        stated=model.stated,
        architecture=model.architecture,
        file_size=model.file_size,
        elements=_elements(model.tensors),
        bpw_all=_bpw(model.tensors, model.tensors),
        bpw_trunk=_bpw(trunk, weights),
        bpw_body=_bpw(body, body),
        draft_head_size=_size(model.tensors) - _size(trunk),
        active_size=_active(trunk, role, used / experts if 0 < used <= experts else 1.0),
        experts=experts,
        experts_used=used if experts else 0,
        types=_types(model.tensors),
    )


def roles(model: ModelFiles) -> Callable[[TensorBytes], Role]:
    """What each tensor of the model is for.

    A draft head is the model's last blocks, as many as its header says.
    """
    trunk_blocks = model.whole("block_count") - model.whole("nextn_predict_layers")

    def role(tensor: TensorBytes) -> Role:
        block = _BLOCK.match(tensor.name)
        if ".nextn." in tensor.name or (block and 0 < trunk_blocks <= int(block[1])):
            return Role.DRAFT_HEAD
        if tensor.name.startswith(_EMBEDDINGS):
            return Role.EMBEDDING
        if tensor.name.startswith("output."):
            return Role.OUTPUT
        return Role.EXPERTS if _EXPERTS.search(tensor.name) else Role.REST

    return role


def trunk_tensors(model: ModelFiles) -> list[TensorBytes]:
    """All tensors but those of a draft head."""
    role = roles(model)
    return [one for one in model.tensors if role(one) is not Role.DRAFT_HEAD]


def _active(trunk: list[TensorBytes], role: Callable[[TensorBytes], Role], share: float) -> int:
    tied = not any(role(one) is Role.OUTPUT for one in trunk)
    total = 0.0
    for tensor in trunk:
        match role(tensor):
            case Role.EXPERTS:
                total += tensor.size * share
            case Role.EMBEDDING if not (tied and tensor.name == "token_embd.weight"):
                total += tensor.size * tensor.shape[0] / tensor.elements
            case _:
                # An embedding that is the output too is read whole.
                total += tensor.size
    return round(total)


def _types(tensors: Iterable[TensorBytes]) -> tuple[TypeShare, ...]:
    """One share per type, the one with most bytes first."""
    by_type: dict[str, list[TensorBytes]] = defaultdict(list)
    for tensor in tensors:
        by_type[tensor.type_name].append(tensor)
    shares = (
        TypeShare(name, len(group), _elements(group), _size(group))
        for name, group in by_type.items()
    )
    return tuple(sorted(shares, key=lambda share: -share.size))


def _size(tensors: Iterable[TensorBytes]) -> int:
    return sum(tensor.size for tensor in tensors)


def _elements(tensors: Iterable[TensorBytes]) -> int:
    return sum(tensor.elements for tensor in tensors)


def _bpw(stored: Iterable[TensorBytes], weights: Iterable[TensorBytes]) -> float:
    elements = _elements(weights)
    return 8 * _size(stored) / elements if elements else 0.0
