"""The folders of a workspace, reached by names alone and kept open.

Every folder is opened component by component without following symlinks, so no path can lead out
of the workspace; and because they stay open, a folder that is renamed meanwhile is still ours.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

from veriloop_tui.store.promotion.hold import Hold, hold

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Beneath:
    """Open folders beneath one root; a context that closes them all.

    Paths are relative, with '/' between parts. Methods raise `OSError`: `FileNotFoundError` where
    a folder is missing, `NotADirectoryError` where a part is a symlink or a file.
    """

    def __init__(self, root: Path) -> None:
        self.root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._open = {"": self.root}

    def directory(self, path: str) -> int:
        """A descriptor of the folder at `path`, opened once; empty is the root."""
        if path not in self._open:
            above, _, name = path.rpartition("/")
            self._open[path] = os.open(name, _DIRECTORY, dir_fd=self.directory(above))
        return self._open[path]

    def parent(self, path: str) -> tuple[int, str]:
        """The folder of a path, and the name in it."""
        above, _, name = path.rpartition("/")
        return self.directory(above), name

    def look(self, path: str) -> Hold | None:
        """What is at `path` now, in the folder as it was opened; `None` for nothing."""
        try:
            return hold(*self.parent(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def look_afresh(self, path: str) -> Hold | None:
        """What a reader who starts at the root finds at `path` now; `None` for nothing."""
        *parts, name = path.split("/")
        current = os.dup(self.root)
        try:
            for part in parts:
                following = os.open(part, _DIRECTORY, dir_fd=current)
                os.close(current)
                current = following
            return hold(current, name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        finally:
            os.close(current)

    def sync(self) -> None:
        """Make the names in every opened folder durable."""
        for fd in self._open.values():
            os.fsync(fd)

    def close(self) -> None:
        """Close every folder."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def __enter__(self) -> Beneath:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
