"""An evaluated context on disk, so that a resumed run does not evaluate it again.

One line of JSON, then the states it lists, then a sha256 of all before: llama.cpp checks little
of what it reads, so nothing reaches it that is not byte for byte what was written.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from veriloop_tui.engine.decoding.checkpoints import Checkpoint
from veriloop_tui.engine.decoding.transcript import Transcript

MAX_BYTES: Final = 4 << 30
_FORMAT: Final = 1
_DIGEST_BYTES: Final = 32
_MAX_HEADER: Final = 64 << 20
_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SavedContext:
    """Sequence 0 of a memory: its tokens, llama.cpp's states, and what they are good for.

    `binding` names everything that must be the same for the states to mean the same. `carried` is
    the hidden row that the draft head's next token needs; `head_state` is empty without a head.
    """

    binding: str
    tokens: tuple[int, ...]
    state: bytes
    checkpoints: tuple[Checkpoint, ...]
    head_state: bytes
    head_length: int
    carried: bytes
    transcript: Transcript


def write_context(path: Path, saved: SavedContext) -> bool:
    """Replace the file at once; False, and nothing changed, where the disk has too little room.

    Raises `OSError`.
    """
    header = json.dumps(
        {
            "format": _FORMAT,
            "binding": saved.binding,
            "tokens": saved.tokens,
            "head_length": saved.head_length,
            "transcript": asdict(saved.transcript),
            "checkpoints": [one.position for one in saved.checkpoints],
            "sizes": [len(blob) for blob in _blobs(saved)],
        }
    ).encode()
    size = len(header) + 1 + sum(map(len, _blobs(saved))) + _DIGEST_BYTES
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if size > MAX_BYTES or size > shutil.disk_usage(path.parent).free // 2:
        return False
    digest = hashlib.sha256()
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
            for part in (header, b"\n", *_blobs(saved)):
                digest.update(part)
                f.write(part)
            f.write(digest.digest())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def read_context(path: Path, binding: str) -> SavedContext | None:
    """What was saved under the same binding; `None` if there is nothing, or it is damaged."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES or not _is_whole(path, size):
            return None
        with path.open("rb") as file:
            header = json.loads(file.readline(_MAX_HEADER))
            if header["format"] != _FORMAT or header["binding"] != binding:
                return None
            blobs = [file.read(length) for length in header["sizes"]]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return _saved(header, blobs)


def _is_whole(path: Path, size: int) -> bool:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        left = size - _DIGEST_BYTES
        while left > 0 and (piece := file.read(min(left, _PIECE))):
            digest.update(piece)
            left -= len(piece)
        return file.read() == digest.digest()


def _blobs(saved: SavedContext) -> Iterable[bytes]:
    yield from (saved.state, saved.head_state, saved.carried)
    for one in saved.checkpoints:
        yield from (one.state, one.hidden)


def _saved(header: dict[str, Any], blobs: list[bytes]) -> SavedContext:
    state, head_state, carried, *rest = blobs
    parts: Iterator[bytes] = iter(rest)
    checkpoints = tuple(
        Checkpoint(position, next(parts), next(parts)) for position in header["checkpoints"]
    )
    transcript = header["transcript"]
    return SavedContext(
        binding=header["binding"],
        tokens=tuple(header["tokens"]),
        state=state,
        checkpoints=checkpoints,
        head_state=head_state,
        head_length=header["head_length"],
        carried=carried,
        transcript=Transcript(
            transcript["text"],
            tuple(transcript["tokens"]),
            tuple((chars, count) for chars, count in transcript["borders"]),
        ),
    )
