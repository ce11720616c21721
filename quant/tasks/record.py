"""What each run of a task came to, kept one line per run so that a study can be broken off."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from veriloop_tui.core.canonical import digest
from veriloop_tui.errors import UsageError

_MAX_LINE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Everything but the model that may change how a run ends; runs are compared only if equal.

    `sampling` are pairs of a sampler setting and its value as text.
    """

    attempts: int
    n_ctx: int
    threads: int
    sampling: tuple[tuple[str, str], ...]
    edit_format: str
    sandbox: str
    program: str

    @property
    def digest(self) -> str:
        """One hash of all of them."""
        return digest(self)


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One task tried with one model and one seed.

    `model` is the file's name, `model_digest` tells files apart. `solved` says that every check
    was satisfied at the end. `tokens` counts evaluated and generated ones; times in seconds.
    """

    task: str
    task_digest: str
    model: str
    model_digest: str
    settings: str
    seed: int
    solved: bool
    outcome: str
    attempts: int
    commits: int
    tokens: int
    rank_before: int
    rank_after: int
    seconds: float

    @property
    def key(self) -> RunKey:
        """What the run was of."""
        return (self.task_digest, self.model_digest, self.settings, self.seed)


RunKey = tuple[str, str, str, int]
_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "str": str,
    "bool": bool,
    "int": int,
    "float": (int, float),
}


class RunFile:
    """The runs so far, in a file of JSON lines; a context manager that may append to it.

    A line that was cut off by a kill is dropped: its run is simply made again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        """Open for appending. Raises `UsageError` where the file is none of ours."""
        self.runs = tuple(read_runs(self._path))
        try:
            self._file = self._path.open("ab")
            self._file.truncate(_whole_bytes(self._path))
        except OSError as problem:
            raise UsageError(f"{self._path} cannot be written: {problem.strerror}.") from problem
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def append(self, run: TaskRun) -> None:
        """Add a run, durably."""
        assert self._file is not None
        self._file.write(json.dumps(asdict(run)).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def read_runs(path: Path) -> Iterator[TaskRun]:
    """The whole lines of a file; none if it is not there. Raises `UsageError`."""
    try:
        with path.open("rb") as file:
            number = 0
            while (line := file.readline(_MAX_LINE)).endswith(b"\n"):
                number += 1
                yield _parse(line, f"{path}:{number}")
    except FileNotFoundError:
        return
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}.") from problem


def _parse(line: bytes, where: str) -> TaskRun:
    try:
        values: Any = json.loads(line)
        run = TaskRun(**values)
    except (ValueError, TypeError, RecursionError):
        raise UsageError(f"{where} is no record of a task; name another file.") from None
    for field in fields(run):
        if not isinstance(getattr(run, field.name), _TYPES[str(field.type)]):
            raise UsageError(f"{where}: '{field.name}' has a wrong value; name another file.")
    return run


def _whole_bytes(path: Path) -> int:
    """The length up to the last line end."""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        while position > 0:
            step = min(position, _MAX_LINE)
            file.seek(position - step)
            end = file.read(step).rfind(b"\n")
            if end >= 0:
                return position - step + end + 1
            position -= step
    return 0
