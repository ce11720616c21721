"""Reading of the GGUF container: little-endian values with every count checked before use."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO, Final

# GGUF value types: id -> (struct format, size in bytes).
_SCALARS: Final = {
    0: ("<B", 1),
    1: ("<b", 1),
    2: ("<H", 2),
    3: ("<h", 2),
    4: ("<I", 4),
    5: ("<i", 4),
    6: ("<f", 4),
    7: ("<?", 1),
    10: ("<Q", 8),
    11: ("<q", 8),
    12: ("<d", 8),
}
_STRING: Final = 8
_ARRAY: Final = 9

_MAX_KEY: Final = 65_535
_MAX_TEXT: Final = 4 << 20
_MAX_KEPT_ARRAY: Final = 4_096
_MAX_STRINGS: Final = 2 << 20
_MAX_ENTRIES: Final = 1 << 20
# Below this, reading is quicker than seeking, which throws the file's buffer away.
_SMALL: Final = 4_096

Scalar = int | float | bool | str
Value = Scalar | tuple[Scalar, ...] | None


class Malformed(Exception):
    """The bytes are not a GGUF header; the text says why."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor's entry: dimensions innermost first, `offset` counted from the data section."""

    name: str
    dims: tuple[int, ...]
    type_id: int
    offset: int

    @property
    def elements(self) -> int:
        """The number of weights."""
        product = 1
        for dim in self.dims:
            product *= dim
        return product


@dataclass(frozen=True, slots=True)
class Header:
    """A whole header. Arrays too long to be kept are `None`; `data_start` is a file offset.

    `duplicate_tokens` counts entries of the token list that repeat an earlier text.
    """

    version: int
    values: dict[str, Value]
    tensors: tuple[Tensor, ...]
    data_start: int
    duplicate_tokens: int


class _Reader:
    """A cursor that never reads or skips past the end of the file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size

    def take(self, count: int) -> bytes:
        self._spend(count)
        data = self._file.read(count)
        if len(data) != count:
            raise Malformed("the file ends inside its header")
        return data

    def skip(self, count: int) -> None:
        if count <= _SMALL:
            self.take(count)
            return
        self._spend(count)
        self._file.seek(count, 1)

    def scalar(self, type_id: int) -> int | float | bool:
        form, size = _SCALARS[type_id]
        value: int | float | bool = struct.unpack(form, self.take(size))[0]
        return value

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def raw_text(self, limit: int) -> bytes:
        length = self.u64()
        if length > limit:
            raise Malformed(f"a text of {length} bytes in the header")
        return self.take(length)

    def text(self, limit: int) -> str:
        return self.raw_text(limit).decode("utf-8", "replace")

    def count(self, what: str, limit: int, least_bytes: int) -> int:
        """A count of things that take at least `least_bytes` each, so it cannot be a lie."""
        count = self.u64()
        if count > limit or count * least_bytes > self._left:
            raise Malformed(f"{count} {what} in a file of this size")
        return count

    def position(self) -> int:
        return self._file.tell()

    def _spend(self, count: int) -> None:
        if count > self._left:
            raise Malformed("the file ends inside its header")
        self._left -= count


def read_header(file: BinaryIO, size: int) -> Header:
    """Read the header of a GGUF of `size` bytes from its start.

    Memory stays bounded whatever the counts claim. Raises `Malformed`, `OSError`.
    """
    reader = _Reader(file, size)
    if size < 24 or reader.take(4) != b"GGUF":
        raise Malformed("it is not a GGUF file")
    version = reader.u32()
    if version not in (2, 3):
        raise Malformed(f"GGUF version {version} is not known (a big-endian file?)")
    n_tensors = reader.count("tensors", _MAX_ENTRIES, 24)
    n_values = reader.count("metadata entries", _MAX_ENTRIES, 13)
    values: dict[str, Value] = {}
    duplicates = 0
    for _ in range(n_values):
        key = reader.text(_MAX_KEY)
        if key in values:
            raise Malformed(f"the metadata key '{key[:80]}' appears twice")
        values[key], repeated = _value(reader, count_repeats=key == "tokenizer.ggml.tokens")
        duplicates += repeated
    tensors = _tensors(reader, n_tensors)
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise Malformed(f"an alignment of {alignment}")
    data_start = -(-reader.position() // alignment) * alignment
    return Header(version, values, tensors, data_start, duplicates)


def _value(reader: _Reader, count_repeats: bool) -> tuple[Value, int]:
    type_id = reader.u32()
    if type_id in _SCALARS:
        return reader.scalar(type_id), 0
    if type_id == _STRING:
        return reader.text(_MAX_TEXT), 0
    if type_id != _ARRAY:
        raise Malformed(f"a metadata value of the unknown type {type_id}")
    item = reader.u32()
    if item == _STRING:
        return _strings(reader, count_repeats)
    if item not in _SCALARS:
        raise Malformed(f"a metadata array of the type {item}")
    width = _SCALARS[item][1]
    count = reader.count("array items", 1 << 62, width)
    if count > _MAX_KEPT_ARRAY:
        reader.skip(count * width)
        return None, 0
    return tuple(reader.scalar(item) for _ in range(count)), 0


def _strings(reader: _Reader, count_repeats: bool) -> tuple[None, int]:
    """Walk over an array of texts without keeping it."""
    count = reader.count("texts in an array", _MAX_STRINGS, 8)
    if not count_repeats:
        for _ in range(count):
            reader.skip(reader.u64())
        return None, 0
    # Hashes, not texts: 16 MiB at most instead of whatever the file holds.
    seen = {hash(reader.raw_text(_MAX_KEY)) for _ in range(count)}
    return None, count - len(seen)


def _tensors(reader: _Reader, count: int) -> tuple[Tensor, ...]:
    tensors: list[Tensor] = []
    names: set[str] = set()
    for _ in range(count):
        name = reader.text(_MAX_KEY)
        n_dims = reader.u32()
        if n_dims > 4:
            raise Malformed(f"a tensor of {n_dims} dimensions")
        dims = tuple(reader.u64() for _ in range(n_dims))
        tensor = Tensor(name, dims, reader.u32(), reader.u64())
        if name in names:
            raise Malformed(f"the tensor '{name[:80]}' appears twice")
        if any(dim == 0 or dim >= 1 << 62 for dim in dims) or tensor.elements >= 1 << 62:
            raise Malformed(f"the tensor '{name[:80]}' has impossible dimensions")
        names.add(name)
        tensors.append(tensor)
    return tuple(tensors)
