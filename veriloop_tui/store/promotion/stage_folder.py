"""The stage folder of one promotion: on the workspace's device, private, gone afterwards."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from veriloop_tui.store.promotion.exchange import exists, on_same_mount
from veriloop_tui.store.promotion.journal import StagePlace

WORKSPACE_STAGE_PREFIX = ".veriloop-stage-"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def choose_place(data: Path, root: int, promotion: str) -> StagePlace:
    """The data directory where files can be renamed from there, else the workspace's root.

    A folder in the workspace moves its root's mtime; the other does not.
    """
    fd = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if on_same_mount(fd, root):
            return StagePlace("data", f"stage-{promotion}")
    finally:
        os.close(fd)
    return StagePlace("workspace", WORKSPACE_STAGE_PREFIX + promotion)


class StageFolder:
    """An open stage folder. Methods raise `OSError`."""

    def __init__(self, place: StagePlace, data: Path, root: Path) -> None:
        """Open it; `FileNotFoundError` where it does not exist."""
        self._above = data if place.within == "data" else root
        self._name = place.name
        self.path = self._above / place.name
        self.fd = os.open(self.path, _DIRECTORY)

    @classmethod
    def make(cls, place: StagePlace, data: Path, root: Path) -> StageFolder:
        """Make it (mode 0700) and open it; `FileExistsError` where the name is taken."""
        above = data if place.within == "data" else root
        (above / place.name).mkdir(mode=0o700)
        return cls(place, data, root)

    def remove(self) -> None:
        """Remove the folder and what is in it; close it. Twice is harmless."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        above = os.open(self._above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if exists(above, self._name):
                shutil.rmtree(self._name, dir_fd=above)
            os.fsync(above)
        finally:
            os.close(above)

    def close(self) -> None:
        """Close it, leaving it where it is."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
