"""Typed access to a header's metadata: what is absent is 0 or empty, a wrong type is an error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from veriloop_tui.engine.gguf.read import Header, Malformed, Value

MAX_BLOCKS = 512  # llama.cpp's LLAMA_MAX_LAYERS
_MAX_WHOLE = 1 << 40


@dataclass(frozen=True, slots=True)
class Metadata:
    """The values of a header, and the prefix of the keys that are the architecture's own."""

    values: Mapping[str, Value]
    lengths: Mapping[str, int]
    architecture: str

    def text(self, key: str) -> str:
        """A text of any key. Raises `Malformed`."""
        value = self.values.get(key, "")
        if not isinstance(value, str):
            raise Malformed(f"the metadata entry '{key[:80]}' is not a text")
        return value

    def whole(self, key: str) -> int:
        """A count of the architecture's. Raises `Malformed`."""
        return self.plain_whole(f"{self.architecture}.{key}")

    def plain_whole(self, key: str) -> int:
        """A count of any key. Raises `Malformed`."""
        return _whole(key, self.values.get(key, 0))

    def wholes(self, key: str) -> tuple[int, ...]:
        """One count, or one for each block; empty where there is none. Raises `Malformed`."""
        key = f"{self.architecture}.{key}"
        value = self.values.get(key, ())
        items = value if isinstance(value, tuple) else (value,)
        return tuple(_whole(key, item) for item in items)

    def each(self, key: str, blocks: int, default: int = 0) -> tuple[int, ...]:
        """A count for each block. Raises `Malformed` if there are too few."""
        found = self.wholes(key) or (default,)
        if len(found) == 1:
            return found * blocks
        if len(found) < blocks:
            raise Malformed(f"'{self.architecture}.{key}' has {len(found)} of {blocks} blocks")
        return found[:blocks]


def metadata(header: Header) -> Metadata:
    """The header's metadata. Raises `Malformed` for what llama.cpp would stumble over."""
    architecture = header.values.get("general.architecture", "")
    if not isinstance(architecture, str):
        raise Malformed("the metadata entry 'general.architecture' is not a text")
    for key, value in header.values.items():
        if key.endswith("_epsilon") and isinstance(value, float) and not math.isfinite(value):
            raise Malformed(f"the metadata entry '{key[:80]}' is {value}")
    return Metadata(header.values, header.lengths, architecture)


def _whole(key: str, value: Value) -> int:
    # Patterns of layers are arrays of booleans; elsewhere a boolean is as wrong as a text.
    if not isinstance(value, int):
        raise Malformed(f"the metadata entry '{key[:80]}' is not a whole number")
    if not -_MAX_WHOLE < value < _MAX_WHOLE:
        raise Malformed(f"the metadata entry '{key[:80]}' is {value}")
    return int(value)
