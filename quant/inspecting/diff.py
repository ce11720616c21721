"""Two quants of one model, tensor by tensor: which kept what at higher precision."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from quant.inspecting.read import ModelFiles, TensorBytes

_BLOCK: Final = re.compile(r"blk\.(\d{1,5})\.")


@dataclass(frozen=True, slots=True)
class Differing:
    """The tensors of one kind (`blk.*.attn_v.weight`) whose types differ in the same way.

    `blocks` are their block numbers, empty for a tensor outside the blocks; sizes in bytes.
    """

    pattern: str
    blocks: tuple[int, ...]
    first_type: str
    second_type: str
    first_size: int
    second_size: int


@dataclass(frozen=True, slots=True)
class Difference:
    """All that differs; names of tensors that only one of two models has, or with another shape.

    `higher_first` and `higher_second` are the kinds that one model keeps with more bits than the
    other, most bytes first.
    """

    higher_first: tuple[Differing, ...]
    higher_second: tuple[Differing, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    reshaped: tuple[str, ...]
    same: int


def difference(first: ModelFiles, second: ModelFiles) -> Difference:
    """What differs between two models' tensors."""
    mine = {tensor.name: tensor for tensor in first.tensors}
    theirs = {tensor.name: tensor for tensor in second.tensors}
    shared = [(tensor, theirs[name]) for name, tensor in mine.items() if name in theirs]
    alike = [pair for pair in shared if pair[0].shape == pair[1].shape]
    changed = [pair for pair in alike if pair[0].type_name != pair[1].type_name]
    kinds = _kinds(changed)
    return Difference(
        higher_first=tuple(one for one in kinds if one.first_size > one.second_size),
        higher_second=tuple(one for one in kinds if one.first_size <= one.second_size),
        only_first=tuple(name for name in mine if name not in theirs),
        only_second=tuple(name for name in theirs if name not in mine),
        reshaped=tuple(a.name for a, b in shared if a.shape != b.shape),
        same=len(alike) - len(changed),
    )


def block_ranges(blocks: Iterable[int]) -> str:
    """Block numbers as people write them: `0-3, 7`."""
    ranges: list[list[int]] = []
    for block in sorted(blocks):
        if ranges and block == ranges[-1][1] + 1:
            ranges[-1][1] = block
        else:
            ranges.append([block, block])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def _kinds(pairs: Iterable[tuple[TensorBytes, TensorBytes]]) -> list[Differing]:
    groups: dict[tuple[str, str, str], list[tuple[TensorBytes, TensorBytes]]] = defaultdict(list)
    for first, second in pairs:
        pattern = _BLOCK.sub("blk.*.", first.name, count=1)
        groups[pattern, first.type_name, second.type_name].append((first, second))
    kinds = [
        Differing(
            pattern=pattern,
            blocks=tuple(sorted(_blocks(first for first, _ in group))),
            first_type=first_type,
            second_type=second_type,
            first_size=sum(first.size for first, _ in group),
            second_size=sum(second.size for _, second in group),
        )
        for (pattern, first_type, second_type), group in groups.items()
    ]
    return sorted(kinds, key=lambda kind: -abs(kind.first_size - kind.second_size))


def _blocks(tensors: Iterable[TensorBytes]) -> list[int]:
    found = (_BLOCK.match(tensor.name) for tensor in tensors)
    return [int(block[1]) for block in found if block]
