"""Reading of the GGUF container: little-endian values with every count checked before use."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Protocol

# GGUF value types: id -> (struct format, size in bytes).
_SCALARS: Final = {
    0: ("B", 1),
    1: ("b", 1),
    2: ("H", 2),
    3: ("h", 2),
    4: ("I", 4),
    5: ("i", 4),
    6: ("f", 4),
    7: ("?", 1),
    10: ("Q", 8),
    11: ("q", 8),
    12: ("d", 8),
}
_STRING: Final = 8
_ARRAY: Final = 9
_LENGTH: Final = struct.Struct("<Q")

_MAX_KEY: Final = 65_535
_MAX_TEXT: Final = 4 << 20
_MAX_KEPT_ARRAY: Final = 4_096
_MAX_TEXTS: Final = 1 << 20
# The largest models have about two thousand tensors and some hundred metadata entries.
_MAX_ENTRIES: Final = 1 << 16
# Bounds for the whole of a header: bytes that are looked at, and bytes that are kept.
_MAX_READ: Final = 256 << 20
_MAX_KEPT: Final = 32 << 20
_BLOCK: Final = 1 << 20

Scalar = int | float | bool | str
Value = Scalar | tuple[Scalar, ...] | None


class Source(Protocol):
    """What a header is read from: a file on a disk, or one behind HTTP."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; fewer only at the end."""
        ...

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go on reading from there."""
        ...


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
    """A whole header; `data_start` is the file offset of the first tensor's bytes.

    Arrays of texts, and those too long to be kept, are `None`; `lengths` has the number of items
    of every array. `duplicate_tokens` counts entries of the token list that repeat an earlier one.
    """

    version: int
    values: dict[str, Value]
    lengths: dict[str, int]
    tensors: tuple[Tensor, ...]
    data_start: int
    duplicate_tokens: int


class _Reader:
    """A cursor over blocks of the file, which never goes past its end."""

    def __init__(self, file: Source, size: int) -> None:
        self._file = file
        self._data = b""
        self._at = 0  # in _data
        self._begin = 0  # of _data in the file
        self._size = size
        self._readable, self._keepable = _MAX_READ, _MAX_KEPT

    @property
    def position(self) -> int:
        """The offset in the file."""
        return self._begin + self._at

    def take(self, count: int) -> bytes:
        self._need(count)
        begin = self._at
        self._at += count
        return self._data[begin : self._at]

    def kept(self, count: int) -> bytes:
        """Bytes that stay in memory."""
        self._keep(count)
        return self.take(count)

    def skip(self, count: int) -> None:
        if count <= len(self._data) - self._at:
            self._at += count
            return
        if count > self._size - self.position:
            raise Malformed("the file ends inside its header")
        self._begin, self._data, self._at = self.position + count, b"", 0
        self._file.seek(self._begin)

    def scalar(self, type_id: int) -> int | float | bool:
        form, size = _SCALARS[type_id]
        value: int | float | bool = struct.unpack("<" + form, self.take(size))[0]
        return value

    def scalars(self, type_id: int, count: int) -> tuple[Scalar, ...]:
        form, size = _SCALARS[type_id]
        return struct.unpack(f"<{count}{form}", self.kept(count * size))

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def text(self, limit: int) -> str:
        length = self.u64()
        if length > limit:
            raise Malformed(f"a text of {length} bytes in the header")
        return self.kept(length).decode("utf-8", "replace")

    def count(self, what: str, limit: int, least_bytes: int) -> int:
        """A count of things that take at least `least_bytes` each, so it cannot be a lie."""
        count = self.u64()
        if count > limit or count * least_bytes > self._size - self.position:
            raise Malformed(f"{count} {what} in a file of this size")
        return count

    def skip_texts(self, count: int) -> None:
        """Walk over texts: much of a large header's time, so without a call for each."""
        unpack = _LENGTH.unpack_from
        while count:
            data, at, room = self._data, self._at, len(self._data) - 8
            while count and at <= room:
                at += 8 + unpack(data, at)[0]
                count -= 1
            # The last of them may reach beyond the block.
            beyond = max(0, at - len(data))
            self._at = at - beyond
            self.skip(beyond)
            if count:
                self._need(8)

    def count_repeats(self, count: int) -> int:
        """Walk over texts, and count those that repeat an earlier one."""
        seen: set[bytes] = set()
        unpack, left = _LENGTH.unpack_from, count
        while left:
            length = self.u64()
            if length > _MAX_KEY:
                raise Malformed(f"a text of {length} bytes in the header")
            seen.add(self.kept(length))
            left -= 1
            # On through the block, as long as a whole text and the next one's length are in it.
            data, begin, last = self._data, self._at + 8, len(self._data) - 8
            if self._at > last:
                continue
            add = seen.add
            for _ in range(left):
                end = begin + unpack(data, begin - 8)[0]
                if end > last:
                    break
                add(data[begin:end])
                begin = end + 8
                left -= 1
            self._keep(begin - 8 - self._at)
            self._at = begin - 8
        return count - len(seen)

    def _keep(self, count: int) -> None:
        self._keepable -= count
        if self._keepable < 0:
            raise Malformed(f"more than {_MAX_KEPT >> 20} MiB of metadata")

    def _need(self, count: int) -> None:
        """Have at least `count` bytes from the cursor on in `_data`."""
        have = len(self._data) - self._at
        if count <= have:
            return
        if count > self._size - self.position:
            raise Malformed("the file ends inside its header")
        wanted = min(max(count - have, _BLOCK), self._size - self._begin - len(self._data))
        self._readable -= wanted
        if self._readable < 0:
            raise Malformed(f"a header of more than {_MAX_READ >> 20} MiB")
        fresh = self._file.read(wanted)
        if len(fresh) != wanted:
            raise Malformed("the file ends inside its header")
        self._begin = self.position
        self._data = self._data[self._at :] + fresh
        self._at = 0


def read_header(file: Source, size: int) -> Header:
    """Read the header of a GGUF of `size` bytes from its start.

    Memory and time stay bounded whatever the counts claim. Raises `Malformed`, and what `file`
    raises.
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
    lengths: dict[str, int] = {}
    duplicates = 0
    for _ in range(n_values):
        key = reader.text(_MAX_KEY)
        if key in values:
            raise Malformed(f"the metadata key '{key[:80]}' appears twice")
        type_id = reader.u32()
        if type_id != _ARRAY:
            values[key] = _value(reader, type_id)
            continue
        item = reader.u32()
        if item == _STRING:
            lengths[key] = reader.count("texts in an array", _MAX_TEXTS, 8)
            values[key] = None
            if key == "tokenizer.ggml.tokens":
                duplicates = reader.count_repeats(lengths[key])
            else:
                reader.skip_texts(lengths[key])
        else:
            values[key], lengths[key] = _numbers(reader, item)
    tensors = _tensors(reader, n_tensors)
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise Malformed(f"an alignment of {alignment}")
    data_start = -(-reader.position // alignment) * alignment
    return Header(version, values, lengths, tensors, data_start, duplicates)


def _value(reader: _Reader, type_id: int) -> Scalar:
    if type_id in _SCALARS:
        return reader.scalar(type_id)
    if type_id != _STRING:
        raise Malformed(f"a metadata value of the unknown type {type_id}")
    return reader.text(_MAX_TEXT)


def _numbers(reader: _Reader, item: int) -> tuple[tuple[Scalar, ...] | None, int]:
    if item not in _SCALARS:
        raise Malformed(f"a metadata array of the type {item}")
    width = _SCALARS[item][1]
    count = reader.count("array items", 1 << 62, width)
    if count > _MAX_KEPT_ARRAY:
        reader.skip(count * width)
        return None, count
    return reader.scalars(item, count), count


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
