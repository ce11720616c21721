"""The promotion journal: one record in one file, replaced as a whole.

`Staging` says that a stage folder may exist and that nothing of the workspace has been touched;
`Prepared` holds all that is needed to take a promotion back, or to finish it.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from veriloop_tui.core.canonical import canonical_bytes
from veriloop_tui.errors import StoreDamaged
from veriloop_tui.store.promotion.hold import Identity

JOURNAL_NAME = "promotion.journal"


@dataclass(frozen=True, slots=True)
class StagePlace:
    """Where a stage folder is: its name in the data directory or in the workspace's root."""

    within: Literal["data", "workspace"]
    name: str


@dataclass(frozen=True, slots=True)
class Remove:
    """The file at `path` moves to `slot`."""

    path: str
    slot: str
    before: Identity


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """The empty directory in `slot` moves to `path`; by its inode number we know it again."""

    path: str
    slot: str
    inode: int


@dataclass(frozen=True, slots=True)
class Edit:
    """The files at `path` and in `slot` change places."""

    path: str
    slot: str
    before: Identity
    after: Identity


@dataclass(frozen=True, slots=True)
class Create:
    """The file in `slot` moves to `path`."""

    path: str
    slot: str
    after: Identity


Step = Remove | MakeDirectory | Edit | Create


@dataclass(frozen=True, slots=True)
class Staging:
    """A stage folder is being filled."""

    promotion: str
    stage: StagePlace


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything is staged; `steps` are applied in order and taken back in reverse."""

    promotion: str
    bundle: str
    stage: StagePlace
    steps: tuple[Step, ...]


class PromotionJournal:
    """The journal of one workspace, a file in its data directory."""

    def __init__(self, data: Path) -> None:
        self._path = data / JOURNAL_NAME

    def write(self, record: Staging | Prepared) -> None:
        """Replace the record, durably. Raises `OSError`."""
        tagged: dict[str, object] = {"type": type(record).__name__, "record": record}
        if isinstance(record, Prepared):
            tagged["kinds"] = [type(step).__name__ for step in record.steps]
        body = canonical_bytes(tagged)
        fresh = self._path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        _sync_directory(self._path.parent)

    def read(self) -> Staging | Prepared | None:
        """The record, or `None` where no promotion is open. Raises `StoreDamaged`."""
        try:
            checksum, _, body = self._path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        if hashlib.sha256(body).hexdigest().encode() != checksum:
            raise StoreDamaged(str(self._path), "its checksum does not fit its bytes")
        return _decode(json.loads(body))

    def clear(self) -> None:
        """Remove the record, durably. Raises `OSError`."""
        self._path.unlink(missing_ok=True)
        _sync_directory(self._path.parent)


def _decode(tagged: dict[str, Any]) -> Staging | Prepared:
    fields = tagged["record"]
    stage = StagePlace(**fields["stage"])
    if tagged["type"] == Staging.__name__:
        return Staging(fields["promotion"], stage)
    steps = tuple(map(_decode_step, tagged["kinds"], fields["steps"]))
    return Prepared(fields["promotion"], fields["bundle"], stage, steps)


def _decode_step(kind: str, fields: dict[str, Any]) -> Step:
    path, slot = fields["path"], fields["slot"]
    match kind:
        case "Remove":
            return Remove(path, slot, Identity(**fields["before"]))
        case "MakeDirectory":
            return MakeDirectory(path, slot, fields["inode"])
        case "Edit":
            return Edit(path, slot, Identity(**fields["before"]), Identity(**fields["after"]))
        case "Create":
            return Create(path, slot, Identity(**fields["after"]))
        case _:
            raise StoreDamaged(JOURNAL_NAME, f"it names an unknown step '{kind}'")


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
