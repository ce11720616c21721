"""What a model's bytes are spent on.

There is no one "bits per weight" (BPW): over everything it counts the embeddings, which small
models spend half their bytes on, and draft heads (MTP), which take no part in plain decoding. So
it is given over everything, over the trunk, and over the trunk without embeddings and output.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from veriloop_tui.engine.gguf.kinds import block_size, type_name
from veriloop_tui.engine.gguf.metadata import Metadata
from veriloop_tui.engine.gguf.read import Malformed, Tensor

_BLOCK: Final = re.compile(r"blk\.(\d{1,5})\.")
_EXPERTS: Final = re.compile(r"_(?:ch)?exps\b")
_INPUT: Final = ("token_embd.", "per_layer_token_embd.")


@dataclass(frozen=True, slots=True)
class TypeShare:
    """All tensors of one type: how many, of how many weights and bytes."""

    type_name: str
    tensors: int
    elements: int
    size: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes in bytes, BPW in bits per weight.

    `types` has the type with most bytes first. `block_sizes` are the blocks' bytes by number,
    those of a draft head included; `input_size` the embeddings' bytes, `output_size` those of the
    output and its norm; `tied`: the embedding is the output too. `active_size` and
    `active_elements` are what one generated token reads (of the experts those used, of an
    embedding one row); `experts` is 0 for a dense model.
    """

    elements: int
    size: int
    types: tuple[TypeShare, ...]
    bpw: float
    bpw_trunk: float
    bpw_body: float
    draft_size: int
    active_size: int
    active_elements: int
    experts: int
    experts_used: int
    block_sizes: tuple[int, ...]
    input_size: int
    output_size: int
    tied: bool

    def block_size(self, number: int) -> int:
        """Bytes of one block, 0 if the file has none of its tensors."""
        return self.block_sizes[number] if number < len(self.block_sizes) else 0


@dataclass(frozen=True, slots=True)
class _Sized:
    name: str
    type_name: str
    elements: int
    size: int
    row: float  # the share of one row


def read_sizes(meta: Metadata, tensors: Sequence[Tensor]) -> Sizes:
    """The sizes of a model. Raises `Malformed`."""
    count, nextn = meta.whole("block_count"), meta.whole("nextn_predict_layers")
    blocks: defaultdict[int, int] = defaultdict(int)
    trunk: list[_Sized] = []
    everything = [_sized(tensor) for tensor in tensors]
    for one in everything:
        match = _BLOCK.match(one.name)
        if match:
            blocks[int(match[1])] += one.size
        if ".nextn." not in one.name and not (match and 0 < count - nextn <= int(match[1])):
            trunk.append(one)
    inputs = [one for one in everything if one.name.startswith(_INPUT)]
    embedded = sum(one.size for one in inputs)
    body = [one for one in trunk if not one.name.startswith((*_INPUT, "output."))]
    experts, used = meta.whole("expert_count"), max(meta.wholes("expert_used_count"), default=0)
    tied = not any(one.name == "output.weight" for one in everything)
    active_size, active_elements = _active(
        trunk, used / experts if 0 < used <= experts else 1, tied
    )
    size = sum(one.size for one in everything)
    return Sizes(
        elements=sum(one.elements for one in everything),
        size=size,
        types=_types(everything),
        bpw=_bpw(everything),
        bpw_trunk=_bpw(trunk),
        bpw_body=_bpw(body),
        draft_size=size - sum(one.size for one in trunk),
        active_size=active_size,
        active_elements=active_elements,
        experts=experts,
        experts_used=used if experts else 0,
        block_sizes=tuple(blocks[number] for number in range(max(blocks, default=-1) + 1)),
        input_size=embedded,
        output_size=size - embedded - sum(blocks.values()),
        tied=tied,
    )


def tensor_size(tensor: Tensor) -> int:
    """The tensor's bytes, 0 if its type is not known. Raises `Malformed`."""
    known = block_size(tensor.type_id)
    if known is None:
        return 0
    block, size = known
    if tensor.dims and tensor.dims[0] % block:
        raise Malformed(f"the rows of the tensor '{tensor.name[:80]}' do not fit its type")
    return tensor.elements // block * size


def _sized(tensor: Tensor) -> _Sized:
    elements = tensor.elements
    row = tensor.dims[0] / elements if tensor.dims else 1.0
    return _Sized(tensor.name, type_name(tensor.type_id), elements, tensor_size(tensor), row)


def _active(trunk: Iterable[_Sized], share: float, tied: bool) -> tuple[int, int]:
    size = elements = 0.0
    for one in trunk:
        part = 1.0
        if _EXPERTS.search(one.name):
            part = share
        elif one.name.startswith(_INPUT) and not (tied and one.name == "token_embd.weight"):
            # An embedding that is the output too is read whole.
            part = one.row
        size += one.size * part
        elements += one.elements * part
    return round(size), round(elements)


def _types(tensors: Iterable[_Sized]) -> tuple[TypeShare, ...]:
    by_type: defaultdict[str, list[_Sized]] = defaultdict(list)
    for one in tensors:
        by_type[one.type_name].append(one)
    shares = (
        TypeShare(
            name, len(group), sum(one.elements for one in group), sum(one.size for one in group)
        )
        for name, group in by_type.items()
    )
    return tuple(sorted(shares, key=lambda share: (-share.size, share.type_name)))


def _bpw(tensors: Sequence[_Sized]) -> float:
    elements = sum(one.elements for one in tensors)
    return 8 * sum(one.size for one in tensors) / elements if elements else 0.0
