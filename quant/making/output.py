"""A file that stands under its name only when it is whole, or not at all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from veriloop_tui.errors import QuantNotMade

_SUFFIX = ".part"


@dataclass(frozen=True, slots=True)
class Reserved:
    """A temporary file beside its final name, locked as long as `descriptor` is open."""

    path: Path
    final: Path
    descriptor: int

    def publish(self) -> None:
        """Flush the file to the disk and give it its final name."""
        os.fsync(self.descriptor)
        self.path.replace(self.final)
        folder = os.open(self.final.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def reserved(final: Path) -> Iterator[Reserved]:
    """An empty temporary file for `final`; it is removed at the end unless it was published.

    What a killed run left is taken over, since its lock went with it. Raises `QuantNotMade`.
    """
    path = final.with_name(final.name + _SUFFIX)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as problem:
        raise QuantNotMade(str(final), problem.strerror or str(problem)) from problem
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise QuantNotMade(str(final), "another run is making it right now") from None
        os.ftruncate(descriptor, 0)
        try:
            yield Reserved(path, final, descriptor)
        finally:
            # While the lock is held: nobody else can have begun a file of this name.
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
