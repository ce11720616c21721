"""Importance matrices: which columns of a tensor matter most, measured on calibration text.

Both forms that llama-imatrix has written are read: GGUF (tensors `NAME.in_sum2` and `NAME.counts`)
and the older one, a plain sequence of entries, little-endian:

    i32 entries | entries x (i32 length, name, i32 calls, i32 values, values x f32)
    | i32 chunks | i32 length, name of the data set      (both optional)
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from gguf import GGUFReader
from numpy.typing import NDArray

from veriloop_tui.engine.gguf.read import Malformed, read_header
from veriloop_tui.errors import ImatrixInvalid

Weights = NDArray[np.float32]

_SUMS: Final = ".in_sum2"
_COUNTS: Final = ".counts"
_MAX_NAME: Final = 1_024
_MAX_ENTRIES: Final = 1 << 20
_MAX_BYTES: Final = 8 << 30


@dataclass(frozen=True, slots=True)
class Imatrix:
    """The mean squared activations of each tensor's columns, one row after the other per expert.

    `chunks` of text were seen, 0 if the file does not say; `datasets` are their names.
    """

    weights: Mapping[str, Weights]
    chunks: int
    datasets: tuple[str, ...]


def read_imatrix(path: Path) -> Imatrix:
    """The importance matrix in a file of either form. Raises `ImatrixInvalid`."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            if size > _MAX_BYTES:
                raise ImatrixInvalid(str(path), "it is larger than 8 GiB")
            found = (
                _from_gguf(path, file, size) if file.peek(4)[:4] == b"GGUF" else _legacy(file, size)
            )
    except (Malformed, ValueError) as problem:
        raise ImatrixInvalid(str(path), str(problem)) from None
    except OSError as problem:
        raise ImatrixInvalid(str(path), problem.strerror or str(problem)) from problem
    for name, values in found.weights.items():
        if not np.isfinite(values).all():
            raise ImatrixInvalid(str(path), f"the values of '{name[:80]}' are not finite")
    return found


def _from_gguf(path: Path, file: BinaryIO, size: int) -> Imatrix:
    # The package trusts every count in the file, so they are checked first.
    header = read_header(file, size)
    for tensor in header.tensors:
        if tensor.type_id != 0 or header.data_start + tensor.offset + 4 * tensor.elements > size:
            raise ValueError(f"the tensor '{tensor.name[:80]}' is not whole, or not F32")
    tensors = {one.name: one.data.reshape(-1) for one in GGUFReader(path).tensors}
    names = {name.removesuffix(_SUMS) for name in tensors if name.endswith(_SUMS)}
    if not names:
        raise ValueError("it holds no sums of activations")
    weights: dict[str, Weights] = {}
    for name in sorted(names):
        counts = tensors.get(name + _COUNTS)
        if counts is None:
            raise ValueError(f"the counts of '{name[:80]}' are missing")
        weights[name] = _means(name, tensors[name + _SUMS], counts)
    chunks = header.values.get("imatrix.chunk_count", 0)
    return Imatrix(weights, chunks if isinstance(chunks, int) else 0, _datasets(path))


def _means(name: str, sums: Weights, counts: Weights) -> Weights:
    """Sums over counts, per expert; an expert that no token reached weighs all columns equally."""
    if sums.size % counts.size:
        raise ValueError(f"sums and counts of '{name[:80]}' do not fit each other")
    rows = sums.reshape(counts.size, -1).astype(np.float32)
    seen = np.rint(counts).reshape(-1, 1)
    means: Weights = np.divide(rows, seen, out=np.ones_like(rows), where=seen > 0)
    return means.reshape(-1)


def _datasets(path: Path) -> tuple[str, ...]:
    field = GGUFReader(path).get_field("imatrix.datasets")
    if field is None:
        return ()
    contents = field.contents()
    names = contents if isinstance(contents, list) else [contents]
    return tuple(str(name) for name in names)


def _legacy(file: BinaryIO, size: int) -> Imatrix:
    entries = _i32(file)
    if not 1 <= entries <= _MAX_ENTRIES:
        raise ValueError("it is no importance matrix")
    weights: dict[str, Weights] = {}
    for _ in range(entries):
        name = _text(file)
        calls, values = _i32(file), _i32(file)
        if values < 1 or 4 * values > size - file.tell():
            raise ValueError("it ends inside an entry")
        sums = np.frombuffer(file.read(4 * values), "<f4").astype(np.float32)
        if name in weights:
            raise ValueError(f"the entry '{name[:80]}' appears twice")
        weights[name] = sums / np.float32(calls) if calls > 0 else sums
    chunks = _i32(file) if file.tell() < size else 0
    datasets = (_text(file),) if file.tell() < size else ()
    return Imatrix(weights, chunks, tuple(name for name in datasets if name))


def _i32(file: BinaryIO) -> int:
    data = file.read(4)
    if len(data) != 4:
        raise ValueError("it ends inside an entry")
    number: int = struct.unpack("<i", data)[0]
    return number


def _text(file: BinaryIO) -> str:
    length = _i32(file)
    if not 0 <= length <= _MAX_NAME:
        raise ValueError(f"it holds a name of {length} bytes")
    data = file.read(length)
    if len(data) != length:
        raise ValueError("it ends inside an entry")
    return data.decode("utf-8", "replace")
