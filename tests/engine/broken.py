"""GGUF files that something is wrong with, made from sound ones by changing bytes."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable

from veriloop_tui.engine.gguf.read import read_header

Break = Callable[[bytes], bytes]


def number(key: str, value: int) -> Break:
    """Another value for a metadata entry of type u32; the key without its architecture."""

    def change(data: bytes) -> bytes:
        at = data.index(b"." + key.encode()) + 1 + len(key)
        assert data[at : at + 4] == struct.pack("<I", 4)
        return data[: at + 4] + struct.pack("<I", value) + data[at + 8 :]

    return change


def repeated_token(data: bytes) -> bytes:
    """The vocabulary holds one text twice."""
    one_byte = struct.pack("<Q", 1)
    return data.replace(one_byte + b"A", one_byte + b"B", 1)


def renamed(old: str, new: str) -> Break:
    """Another name of the same length for a tensor, or for the architecture."""
    assert len(old) == len(new)
    return lambda data: data.replace(old.encode(), new.encode())


def cut_short(data: bytes) -> bytes:
    """The last weights are missing."""
    return data[:-500]


def no_numbers(tensor: str) -> Break:
    """Every weight of a tensor is NaN."""

    def change(data: bytes) -> bytes:
        header = read_header(io.BytesIO(data), len(data))
        (found,) = (one for one in header.tensors if one.name == tensor)
        at = header.data_start + found.offset
        bad = struct.pack("<f", float("nan")) * found.elements
        return data[:at] + bad + data[at + len(bad) :]

    return change


def garbage(_data: bytes) -> bytes:
    """Something else under the name of a model."""
    return b"<!DOCTYPE html>" * 100


def nothing(_data: bytes) -> bytes:
    """A file that a download has only begun."""
    return b""
