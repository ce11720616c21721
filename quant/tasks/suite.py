"""The repair tasks that quants are tried on: small workspaces with a bug, tests and a contract.

A suite is a folder with one folder per task. A task without a `veriloop.toml` of its own gets the
suite's.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from veriloop_tui.errors import UsageError

CONTRACT_FILE: Final = "veriloop.toml"
SHIPPED_SUITE: Final = Path(__file__).parent / "task_suite"
_SKIPPED: Final = frozenset({"__pycache__", ".pytest_cache"})
_MAX_FILES: Final = 1_000
_MAX_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Task:
    """One task; `files` are pairs of a relative path and the bytes, in order of path."""

    name: str
    files: tuple[tuple[str, bytes], ...]

    @property
    def digest(self) -> str:
        """The sha256 over names and bytes of its files."""
        parts = [(path, hashlib.sha256(data).hexdigest()) for path, data in self.files]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def write(self, folder: Path, python: str) -> None:
        """Write the files into an empty `folder`; `python` runs the contract's commands."""
        for name, data in self.files:
            path = folder / PurePosixPath(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_with_python(data, python) if name == CONTRACT_FILE else data)


def read_suite(folder: Path = SHIPPED_SUITE) -> tuple[Task, ...]:
    """All tasks of a suite, by name. Raises `UsageError`."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder of tasks; name one with --suite.")
    shared = folder / CONTRACT_FILE
    contract = shared.read_bytes() if shared.is_file() else None
    places = sorted(
        place for place in folder.iterdir() if place.is_dir() and place.name not in _SKIPPED
    )
    tasks = tuple(_read_task(place, contract) for place in places)
    if not tasks:
        raise UsageError(f"{folder} holds no tasks; each is a folder with a {CONTRACT_FILE}.")
    return tasks


def choose(tasks: tuple[Task, ...], names: tuple[str, ...]) -> tuple[Task, ...]:
    """The named tasks, all if none is named. Raises `UsageError`."""
    unknown = set(names) - {task.name for task in tasks}
    if unknown:
        known = ", ".join(task.name for task in tasks)
        raise UsageError(f"There is no task '{min(unknown)}'; use some of {known}.")
    return tuple(task for task in tasks if not names or task.name in names)


def _read_task(folder: Path, contract: bytes | None) -> Task:
    files: dict[str, bytes] = {} if contract is None else {CONTRACT_FILE: contract}
    size = 0
    for path in sorted(folder.rglob("*")):
        if _SKIPPED.intersection(path.relative_to(folder).parts):
            continue
        if path.is_symlink():
            raise UsageError(f"{path} is a link; a task must hold its files itself.")
        if path.is_file():
            size += path.stat().st_size
            if size > _MAX_BYTES or len(files) > _MAX_FILES:
                raise UsageError(f"{folder} is too large for a task; keep it below 16 MiB.")
            files[path.relative_to(folder).as_posix()] = path.read_bytes()
    if CONTRACT_FILE not in files:
        raise UsageError(f"{folder} has no {CONTRACT_FILE}; write one, or one for the whole suite.")
    return Task(folder.name, tuple(sorted(files.items())))


def _with_python(contract: bytes, python: str) -> bytes:
    # A JSON string is a TOML string too, whatever the path holds.
    quoted = json.dumps(python, ensure_ascii=False).encode()
    return contract.replace(b'"python3"', quoted, 1)
