"""The write-ahead log that a crash leaves: is it what was written?

SQLite takes the first frame with a wrong checksum for the end of the log, so that one flipped byte
would silently take the committed transactions from there on with it. This looks at the log before
SQLite does. A clean close leaves no log; `-shm` files are rebuilt from the log and carry nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from veriloop_tui.errors import StoreDamaged

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC_LITTLE, _MAGIC_BIG = 0x377F0682, 0x377F0683
_WORD = 0xFFFFFFFF


def wal_path(database: Path) -> Path:
    """Where SQLite keeps the log of a database."""
    return Path(f"{database}-wal")


def verify(database: Path) -> Iterator[StoreDamaged]:
    """The first place where the log is not what was written; only for one that is not in use.

    A frame cut off by the end of the file is what a crash leaves and no damage, as are whole
    frames of an earlier log that this one has begun to write over.
    """
    path = wal_path(database)
    if not path.exists() or path.stat().st_size == 0:
        return
    content = path.read_bytes()
    if len(content) < _HEADER.size:
        return
    magic, _, page, _, salt1, salt2, sum1, sum2 = _HEADER.unpack_from(content)
    order = {_MAGIC_LITTLE: "<", _MAGIC_BIG: ">"}.get(magic, "")
    if not order or _checksum(content[: _HEADER.size - 8], (0, 0), order) != (sum1, sum2):
        yield StoreDamaged(str(path), "the header of the write-ahead log is not what was written")
        return
    running = (sum1, sum2)
    size = _FRAME.size + page
    for number, at in enumerate(range(_HEADER.size, len(content) - size + 1, size), start=1):
        *_, first, second, sum1, sum2 = _FRAME.unpack_from(content, at)
        if first != salt1 and second != salt2:
            return
        running = _checksum(content[at : at + 8], running, order)
        running = _checksum(content[at + _FRAME.size : at + size], running, order)
        if (first, second) != (salt1, salt2) or running != (sum1, sum2):
            yield StoreDamaged(
                f"{path}, frame {number} (byte {at})",
                "it is not what was written; what was recorded from here on is lost "
                "(or never was, if the machine lost power while it was being written)",
            )
            return


def _checksum(content: bytes, start: tuple[int, int], order: str) -> tuple[int, int]:
    """SQLite's running sum over pairs of 32-bit words."""
    first, second = start
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _WORD
        second = (second + odd + first) & _WORD
    return first, second
