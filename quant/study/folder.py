"""Where measurements are kept: a folder for each ground, in it a record for each model.

Folders and files are named by the keys of settings, so measurements of unequal ones cannot meet,
and a quant that was measured before, in whatever study, is not measured again.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from quant.study.record import Record
from quant.study.sidecar import (
    Contestant,
    Ground,
    Speeds,
    read_speeds,
    write_sidecar,
    write_speeds,
)
from veriloop_tui.core.canonical import digest
from veriloop_tui.errors import RecordInvalid


class GroundFolder:
    """The measurements on one ground, locked against other programs; a context manager."""

    def __init__(self, root: Path, ground: Ground, labels: dict[str, object]) -> None:
        """Make it or go on with it. Raises `RecordInvalid`."""
        self.path, self._ground = root / ground.key, ground
        self._stack = ExitStack()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as problem:
            raise RecordInvalid(str(self.path), problem.strerror or str(problem)) from problem
        self._stack.callback(os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._stack.close()
            raise RecordInvalid(
                str(self.path), "another program is adding to them; wait for its end"
            ) from None
        write_sidecar(self.path / "ground.json", ground, labels)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def logits(self) -> Path:
        """Where the base's rows may wait."""
        return self.path / "base.logits"

    def record(self, contestant: Contestant, labels: dict[str, object]) -> Record:
        """The losses of a model so far. Raises `RecordInvalid`, `DiskTooSmall`."""
        write_sidecar(self.path / f"{contestant.key}.json", contestant, labels)
        record = Record(self.path / f"{contestant.key}.losses", self._ground.shape.rows)
        self._stack.callback(record.close)
        return record


def known_speeds(root: Path, ground: Ground, contestant: Contestant) -> Speeds | None:
    """What was measured before of the same model on the same machine."""
    return read_speeds(_speeds(root, ground, contestant))


def keep_speeds(root: Path, ground: Ground, contestant: Contestant, speeds: Speeds) -> None:
    """Keep what was measured. Raises `RecordInvalid`."""
    path = _speeds(root, ground, contestant)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise RecordInvalid(str(path.parent), problem.strerror or str(problem)) from problem
    write_speeds(path, speeds)


def _speeds(root: Path, ground: Ground, contestant: Contestant) -> Path:
    told = digest((contestant, ground.threads, ground.gpu_layers, ground.backend))
    return root / "speeds" / f"{told[:16]}.json"
