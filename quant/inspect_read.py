"""A whole model as its files' headers describe it: all shards, every tensor with its bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from veriloop_tui.engine.gguf_read import Header, Malformed, Tensor, Value, read_header
from veriloop_tui.engine.gguf_types import block_size, file_type_name, type_name
from veriloop_tui.errors import ModelFileInvalid, ModelNotFound

# gguf-split's names: `NAME-00001-of-00003.gguf`.
_SHARD: Final = re.compile(r"(?P<stem>.*)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_MAX_SHARDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class TensorBytes:
    """One tensor: `shape` innermost first, `size` in bytes as it is stored."""

    name: str
    type_name: str
    shape: tuple[int, ...]
    elements: int
    size: int


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a model; sizes in bytes, `header_size` up to the first tensor's bytes."""

    path: Path
    file_size: int
    header_size: int


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model in one file or in several.

    `stated` is the file type that the header states, such as `Q4_K_M`, empty where it is silent;
    `values` are the first file's metadata.
    """

    path: Path
    shards: tuple[Shard, ...]
    tensors: tuple[TensorBytes, ...]
    architecture: str
    stated: str
    values: dict[str, Value]

    @property
    def file_size(self) -> int:
        """Bytes of all files together."""
        return sum(shard.file_size for shard in self.shards)

    @property
    def name(self) -> str:
        """The file's name without shard number and ending."""
        found = _SHARD.fullmatch(self.path.name)
        return found["stem"] if found else self.path.name.removesuffix(".gguf")

    def whole(self, key: str) -> int:
        """A count of the architecture's metadata, 0 where the header is silent."""
        value = self.values.get(f"{self.architecture}.{key}", 0)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0


def shard_paths(path: Path) -> tuple[Path, ...]:
    """All files of the model that `path` is one file of. Raises `ModelFileInvalid`."""
    found = _SHARD.fullmatch(path.name)
    if found is None:
        return (path,)
    count = int(found["count"])
    if not 1 <= int(found["index"]) <= count <= _MAX_SHARDS:
        raise ModelFileInvalid(str(path), "its name numbers it outside its own count of parts")
    names = (f"{found['stem']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1))
    paths = tuple(path.with_name(name) for name in names)
    for number, part in enumerate(paths, 1):
        if not part.is_file():
            raise ModelFileInvalid(str(path), f"part {number} of {count} is missing")
    return paths


def read_model(path: Path) -> ModelFiles:
    """The model that `path` holds or is a part of. Raises `ModelNotFound`, `ModelFileInvalid`."""
    if not path.is_file():
        raise ModelNotFound(str(path), "Check the path.")
    shards: list[Shard] = []
    tensors: dict[str, TensorBytes] = {}
    first: Header | None = None
    for part in shard_paths(path):
        header, shard = _read(part)
        first = first or header
        shards.append(shard)
        for one in _tensors(header, shard):
            if one.name in tensors:
                raise ModelFileInvalid(str(part), "an earlier part holds one of its tensors too")
            tensors[one.name] = one
    assert first is not None
    architecture = first.values.get("general.architecture", "")
    return ModelFiles(
        path=path,
        shards=tuple(shards),
        tensors=tuple(tensors.values()),
        architecture=architecture if isinstance(architecture, str) else "",
        stated=file_type_name(first.values.get("general.file_type")) or "",
        values=first.values,
    )


def _read(path: Path) -> tuple[Header, Shard]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            header = read_header(file, size)
    except Malformed as problem:
        raise ModelFileInvalid(str(path), str(problem)) from None
    except OSError as problem:
        raise ModelFileInvalid(str(path), problem.strerror or str(problem)) from problem
    return header, Shard(path, size, header.data_start)


def _tensors(header: Header, shard: Shard) -> list[TensorBytes]:
    room = shard.file_size - shard.header_size
    begins = sorted({*(tensor.offset for tensor in header.tensors), room})
    following = dict(pairwise(begins))
    found: list[TensorBytes] = []
    for tensor in header.tensors:
        size = _size(tensor)
        if size is None:
            # A type that is newer than the gguf package: what it takes up, padding included.
            size = following.get(tensor.offset, tensor.offset) - tensor.offset
        if tensor.offset + size > room:
            raise ModelFileInvalid(str(shard.path), "it is cut short; download it again")
        found.append(
            TensorBytes(
                name=tensor.name,
                type_name=type_name(tensor.type_id),
                shape=tensor.dims,
                elements=tensor.elements,
                size=size,
            )
        )
    return found


def _size(tensor: Tensor) -> int | None:
    known = block_size(tensor.type_id)
    if known is None:
        return None
    elements, size = known
    return -(-tensor.elements // elements) * size
