"""The overlay rung: the live workspace below, the candidate above, mounted on the workspace's path.

The mount exists only inside the namespace of each command. Costs nothing per file; writes go to
the upper folder and never reach the workspace. Renaming a folder of the workspace fails there with
EXDEV, as the kernel documents.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from veriloop_tui.core.snapshot import Change
from veriloop_tui.errors import StagingUnavailable
from veriloop_tui.store.staging.area import stage_area
from veriloop_tui.store.staging.layout import lay_out, whiteout
from veriloop_tui.store.staging.namespace import MountNamespace

# Relative names keep commas and colons of real paths out of the mount options.
_MOUNT = (
    'cd "$1" && "$mount" -t overlay overlay'
    ' -o lowerdir=lower,upperdir=upper,workdir=work,userxattr "$2"'
)


@dataclass(frozen=True, slots=True)
class OverlayStage:
    """A candidate in an upper folder. `area` is its private folder on the host."""

    root: Path
    scratch: Path
    area: Path
    namespace: MountNamespace

    def enter(self, argv: Sequence[str]) -> tuple[str, ...]:
        """The argv that runs `argv` with the overlay on `root`."""
        return self.namespace.enter(_MOUNT, (str(self.area), str(self.root)), str(self.root), argv)


@dataclass(frozen=True, slots=True)
class OverlayStager:
    """Stages by overlay mounts. `root` is a resolved path."""

    root: Path
    scratch_dir: Path
    namespace: MountNamespace
    rung: str = "overlay"

    @contextmanager
    def stage(self, changes: tuple[Change, ...]) -> Iterator[OverlayStage]:
        """A fresh upper folder with the changes. Raises `StagingUnavailable`, `InvalidEdit`."""
        with stage_area(self.scratch_dir, self.rung) as area:
            try:
                upper, scratch = area / "upper", area / "scratch"
                for folder in (upper, scratch, area / "work"):
                    folder.mkdir()
                (area / "lower").symlink_to(self.root)
                upper.chmod(stat.S_IMODE(self.root.stat().st_mode))
                lay_out(changes, self.root, upper, whiteout)
            except OSError as error:
                raise StagingUnavailable(self.rung, str(error)) from error
            yield OverlayStage(self.root, scratch, area, self.namespace)
