"""From the bytes of an HTTP answer to JSON objects, within bounds: the peer may send anything."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

MAX_WHOLE: Final = 64 << 20
MAX_EVENT: Final = 16 << 20
MAX_LIST: Final = 4 << 20
MAX_REFUSAL: Final = 64 << 10
_END: Final = b"[DONE]"


class GarbledError(Exception):
    """The peer sent what cannot be understood; `problem` completes "the server …: "."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)


def events(pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events, up to `[DONE]`.

    Raises `GarbledError` where there is something else, or one event beyond all measure.
    """
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        head, newline, rest = piece.rpartition(b"\n")
        if newline:
            lines = b"".join((*waiting, head)).split(b"\n")
            waiting, size = [], 0
            for line in lines:
                if (data := _data(line)) == _END:
                    return
                if data:
                    yield json_object(data)
        waiting.append(rest)
        size += len(rest)
        if size > MAX_EVENT:
            raise GarbledError("one event of its stream is too large")
    data = _data(b"".join(waiting))
    if data not in (b"", _END):
        yield json_object(data)


def _data(line: bytes) -> bytes:
    """The JSON that a line carries, empty for none."""
    name, _, value = line.partition(b":")
    if name == b"data":
        return value.strip()
    # How older llama-servers tell of a failure in the middle.
    return b'{"error":' + value + b"}" if name == b"error" else b""


def whole(pieces: Iterable[bytes], most: int) -> bytes:
    """All bytes of an answer. Raises `GarbledError` for more than `most`."""
    parts: list[bytes] = []
    size = 0
    for piece in pieces:
        parts.append(piece)
        size += len(piece)
        if size > most:
            raise GarbledError("its answer is too large")
    return b"".join(parts)


def beginning(pieces: Iterable[bytes], most: int) -> bytes:
    """The first bytes of an answer, `most` of them at the most."""
    body = b""
    for piece in pieces:
        body += piece[: most - len(body)]
        if len(body) == most:
            break
    return body


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object that `body` is. Raises `GarbledError`."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise GarbledError(f"its answer is not JSON ({problem})") from None
    if not isinstance(value, dict):
        raise GarbledError("its answer is not a JSON object")
    return value


def fields(value: object) -> dict[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def text(value: object, most: int = MAX_WHOLE) -> str:
    """`value` if it is text, else empty. Lone surrogates, which no file can hold, are replaced."""
    if not isinstance(value, str):
        return ""
    return value[:most].encode("utf-8", "replace").decode("utf-8", "replace")


def number(values: dict[str, Any], key: str) -> float:
    """A finite number of 0 or more, else 0."""
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    # Before the conversion: an integer can be too large for a float.
    return float(value) if 0 <= value < 1 << 53 and math.isfinite(value) else 0.0


def count(values: dict[str, Any], key: str) -> int:
    """A whole number of 0 or more, else 0."""
    return int(number(values, key))
