"""The copy rung: the whole workspace, ignored folders too, file by file, never by hard links."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from veriloop_tui.core.snapshot import Change
from veriloop_tui.errors import StagingUnavailable
from veriloop_tui.store.staging.area import stage_area
from veriloop_tui.store.staging.layout import lay_out, unlink
from veriloop_tui.store.staging.namespace import MountNamespace

_MOUNT = '"$mount" --bind "$1" "$2"'


@dataclass(frozen=True, slots=True)
class CopyStage:
    """A candidate in a copy. With a namespace the copy is mounted on the workspace's own path."""

    root: Path
    scratch: Path
    copy: Path
    namespace: MountNamespace | None

    def enter(self, argv: Sequence[str]) -> tuple[str, ...]:
        """The argv that runs `argv` where `root` is the copy."""
        if self.namespace is None:
            return tuple(argv)
        return self.namespace.enter(_MOUNT, (str(self.copy), str(self.root)), str(self.root), argv)


@dataclass(frozen=True, slots=True)
class CopyStager:
    """Stages by copying. `root` is a resolved path.

    Without a namespace the commands see the copy at another path than the workspace's.
    """

    root: Path
    scratch_dir: Path
    namespace: MountNamespace | None
    rung: str = "copy"

    @contextmanager
    def stage(self, changes: tuple[Change, ...]) -> Iterator[CopyStage]:
        """A fresh copy with the changes. Raises `StagingUnavailable`, `InvalidEdit`."""
        with stage_area(self.scratch_dir, self.rung) as area:
            copy, scratch = area / "copy" / self.root.name, area / "scratch"
            try:
                scratch.mkdir()
                shutil.copytree(self.root, copy, symlinks=True, copy_function=_copy_file)
                lay_out(changes, copy, copy, unlink)
            except shutil.Error as error:
                path, _, problem = error.args[0][0]
                raise StagingUnavailable(self.rung, f"{path}: {problem}") from error
            except OSError as error:
                raise StagingUnavailable(self.rung, str(error)) from error
            root = copy if self.namespace is None else self.root
            yield CopyStage(root, scratch, copy, self.namespace)


def _copy_file(source: str, target: str) -> None:
    mode = os.lstat(source).st_mode
    if stat.S_ISFIFO(mode):
        os.mkfifo(target, stat.S_IMODE(mode))
    elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
        shutil.copy2(source, target, follow_symlinks=False)
    # A socket or a device node belongs to a running program and has no bytes to copy.
