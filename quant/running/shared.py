"""Memory that this process and the processes of models see, with no file on a disk."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from types import TracebackType
from typing import Self


class SharedMemory:
    """A piece of memory behind a descriptor that a child process may inherit."""

    def __init__(self) -> None:
        """Of size 0. Raises `OSError`."""
        if sys.platform == "linux":
            self.descriptor = os.memfd_create("veriloop-quant")
        else:
            # Its name is gone at once; what is written may reach the disk nevertheless.
            with tempfile.TemporaryFile() as file:
                self.descriptor = os.dup(file.fileno())
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self.descriptor)

    def resized(self, size: int) -> mmap.mmap:
        """The first `size` bytes; what was there before stays. Raises `OSError`."""
        if size > self._size:
            os.ftruncate(self.descriptor, size)
            self._size = size
        return mmap.mmap(self.descriptor, size)
