"""One byte form for each value, so that equal values have equal hashes on every machine."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from enum import Enum

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def to_json(value: object) -> Json:
    """Turn frozen dataclasses, enums, tuples, sets, mappings and bytes into plain JSON values.

    Bytes become hex, sets are sorted. Raises `TypeError` for anything else.
    """
    if isinstance(value, Enum):
        return to_json(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(to_json(key)): to_json(item) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return [to_json(item) for item in sorted(value)]
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no canonical form")


def canonical_bytes(value: object) -> bytes:
    """JSON with sorted keys, no spaces and ASCII only (lone surrogates survive as escapes)."""
    return json.dumps(
        to_json(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode("ascii")


def digest(value: object) -> str:
    """Hex sha256 of the canonical bytes."""
    return hashlib.sha256(canonical_bytes(value)).hexdigest()
