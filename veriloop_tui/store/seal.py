"""Page sums: a sha256 for each page of the database, written when it is closed cleanly.

SQLite itself does not notice a flipped byte in a value, in free space or in most of its header.
The sums lie beside the database and are removed while it is open for writing, so after a crash
there are none until the next clean close; a sum file that is itself damaged is named too, and may
be deleted by hand, which leaves the database as after a crash.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from veriloop_tui.errors import StoreDamaged

PAGE = 4096
_MAGIC = b"veriloop-sums 1\n"
_SUM = 32


def sums_path(database: Path) -> Path:
    """Where the sums of a database lie."""
    return database.with_suffix(".sums")


def write(database: Path) -> None:
    """Seal the database as it is now, durably and all at once."""
    with database.open("rb") as source:
        size = os.fstat(source.fileno()).st_size
        body = _MAGIC + size.to_bytes(8, "big") + b"".join(_page_sums(source))
    target = sums_path(database)
    draft = target.with_suffix(".sums-new")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as out:
        out.write(body + hashlib.sha256(body).digest())
        out.flush()
        os.fsync(out.fileno())
    draft.replace(target)
    _sync_directory(database.parent)


def remove(database: Path) -> None:
    """Break the seal, durably, before the first write."""
    target = sums_path(database)
    if target.exists():
        target.unlink()
        _sync_directory(database.parent)


def verify(database: Path) -> Iterator[StoreDamaged]:
    """Every page that is not what it was when the database was sealed; nothing if unsealed."""
    target = sums_path(database)
    if not target.exists():
        return
    content = target.read_bytes()
    body, own = content[:-_SUM], content[-_SUM:]
    head = len(_MAGIC) + 8
    if len(body) < head or hashlib.sha256(body).digest() != own:
        yield StoreDamaged(str(target), "the file of page sums is not what was written")
        return
    size = int.from_bytes(body[len(_MAGIC) : head], "big")
    expected = [body[i : i + _SUM] for i in range(head, len(body), _SUM)]
    if not database.exists():
        yield StoreDamaged(str(database), "the database is missing")
        return
    with database.open("rb") as source:
        found_size = os.fstat(source.fileno()).st_size
        if found_size != size:
            yield StoreDamaged(str(database), f"it has {found_size} bytes, {size} were written")
        for number, (wanted, found) in enumerate(
            zip(expected, _page_sums(source), strict=False), start=1
        ):
            if wanted != found:
                yield StoreDamaged(
                    f"{database}, page {number} (bytes {(number - 1) * PAGE} to {number * PAGE})",
                    "its bytes are not what was written",
                )


def _page_sums(source: BinaryIO) -> Iterator[bytes]:
    while page := source.read(PAGE):
        yield hashlib.sha256(page).digest()


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
