"""Models in several files, as gguf-split names them: `NAME-00001-of-00003.gguf`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from veriloop_tui.engine.gguf.metadata import metadata
from veriloop_tui.engine.gguf.read import Header, Malformed, Tensor
from veriloop_tui.engine.gguf.sizes import tensor_size

_SHARD: Final = re.compile(r"(?P<stem>.*)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_MAX_SHARDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a model; sizes in bytes.

    `header_size` reaches to the first tensor's bytes, `expected_size` to the last one's end.
    """

    path: str
    size: int
    header_size: int
    expected_size: int


def shard_names(name: str) -> tuple[str, ...]:
    """The names of all files of the model that the file `name` is one of, in their order.

    Raises `Malformed` for a number outside its own count.
    """
    found = _SHARD.fullmatch(name)
    if found is None:
        return (name,)
    count = int(found["count"])
    if not 1 <= int(found["index"]) <= count <= _MAX_SHARDS:
        raise Malformed("its name numbers it outside its own count of parts")
    return tuple(f"{found['stem']}-{at:05}-of-{count:05}.gguf" for at in range(1, count + 1))


def stem(name: str) -> str:
    """A file's name without its ending and its number."""
    found = _SHARD.fullmatch(name)
    return found["stem"] if found else name.removesuffix(".gguf")


def part(path: str, size: int, header: Header) -> Part:
    """One file of a model. Raises `Malformed`."""
    ends = (tensor.offset + tensor_size(tensor) for tensor in header.tensors)
    return Part(path, size, header.data_start, header.data_start + max(ends, default=0))


def joined(headers: Sequence[Header]) -> tuple[Tensor, ...]:
    """The tensors of all parts. Raises `Malformed` where the parts do not belong together."""
    if len(headers) == 1:
        return headers[0].tensors
    for number, header in enumerate(headers):
        meta = metadata(header)
        if meta.plain_whole("split.count") != len(headers):
            raise Malformed(f"part {number + 1} says that it is one of another number of parts")
        if meta.plain_whole("split.no") != number:
            raise Malformed(f"the file of part {number + 1} holds another part")
    tensors = tuple(tensor for header in headers for tensor in header.tensors)
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise Malformed("two of its parts hold the same tensor")
    stated = metadata(headers[0]).plain_whole("split.tensors.count")
    if stated != len(tensors):
        raise Malformed(f"its parts hold {len(tensors)} of {stated} tensors")
    return tensors
