"""Names for what the store keeps: snapshots of a workspace and the changes between them.

Paths are relative to the workspace, with '/' between parts, decoded with `os.fsdecode` (so a
byte that is not UTF-8 is a lone surrogate), never absolute, never with '..'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NewType

SnapshotId = NewType("SnapshotId", str)
"""Hex sha256 of a snapshot's root tree object."""

EntryKind = Literal["file", "symlink", "directory"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a snapshot.

    `mode` holds the permission bits; `digest` is the sha256 of a file's bytes or of a link's
    target, empty for a directory; `size` counts those bytes.
    """

    path: str
    kind: EntryKind
    mode: int
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Write:
    """The file at `path` gets exactly these bytes; `mode` is kept as it is where `None`.

    A new file without a mode gets 0o644.
    """

    path: str
    content: bytes
    mode: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """The file at `path` goes away."""

    path: str


Change = Write | Delete
"""A rename is the `Write` of the new path with the old one's bytes and mode, and a `Delete`."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposed next state: the changes of one answer to one base, at most one per path."""

    base: SnapshotId
    changes: tuple[Change, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """The touched paths, in order."""
        return tuple(change.path for change in self.changes)
