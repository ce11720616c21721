"""A workspace, its base entries, and a promoter on them, for the promotion tests."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from veriloop_tui.core.snapshot import Candidate, Change, Delete, Entry, SnapshotId, Write
from veriloop_tui.store.lock import WorkspaceLock
from veriloop_tui.store.promotion.exchange import Renames, kernel_renames
from veriloop_tui.store.promotion.promoter import JournalledPromoter
from veriloop_tui.wiring.clock import SystemClock

BASE = SnapshotId("base")
RESULT = SnapshotId("result")
BUNDLE = "bundle-1"

OLD_FILES = {"a.py": b"old a\r\n", "pkg/b.py": b"old b", "pkg/gone.py": b"old gone\n"}
CHANGES: tuple[Change, ...] = (
    Write("a.py", b"new a\r\n"),
    Write("pkg/b.py", b"new b, longer", 0o755),
    Delete("pkg/gone.py"),
    Write("fresh/deep/c.py", b"new c\n"),
    Write("pkg/d.py", b"new d\n"),
)


def content_of(root: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and bytes of everything under a folder; a link's bytes are its target."""
    found: dict[str, tuple[int, bytes]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        if path.is_symlink():
            content = os.fsencode(path.readlink())
        elif path.is_dir():
            content = b"<folder>"
        else:
            content = path.read_bytes()
        found[str(path.relative_to(root))] = (stat.S_IMODE(status.st_mode), content)
    return found


def entry_of(root: Path, path: str) -> Entry | None:
    """The live file as a base's entry."""
    full = root / path
    if full.is_symlink():
        target = os.fsencode(full.readlink())
        return Entry(path, "symlink", 0o777, hashlib.sha256(target).hexdigest(), len(target))
    if not full.exists():
        return None
    mode = stat.S_IMODE(full.stat().st_mode)
    if full.is_dir():
        return Entry(path, "directory", mode, "", 0)
    content = full.read_bytes()
    return Entry(path, "file", mode, hashlib.sha256(content).hexdigest(), len(content))


@dataclass
class Ground:
    """`root` is the workspace, `data` the data directory, `marker` stands for the ledger."""

    root: Path
    data: Path
    marker: Path

    def fill(self, files: dict[str, bytes] | None = None) -> None:
        for path, content in (OLD_FILES if files is None else files).items():
            full = self.root / path
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_bytes(content)
            # Long past, so that a promotion need not wait for a second of its own.
            os.utime(full, (1_000_000, 1_000_000))

    def candidate(self, *changes: Change) -> Candidate:
        return Candidate(BASE, changes)

    def commit(self, bundle_id: str = BUNDLE) -> None:
        with self.marker.open("a") as file:
            file.write(bundle_id + "\n")

    def committed(self, bundle_id: str) -> bool:
        return self.marker.exists() and bundle_id in self.marker.read_text().split()

    def promoter(
        self,
        *,
        step: Callable[[str], None] = lambda name: None,
        notices: list[str] | None = None,
        kernel: Callable[[int], Renames | None] = kernel_renames,
        paths: tuple[str, ...] = (*OLD_FILES, "fresh/deep/c.py", "pkg/d.py"),
    ) -> JournalledPromoter:
        """A promoter whose base is the workspace as it is now, for these paths."""
        base = {path: entry_of(self.root, path) for path in paths}
        return JournalledPromoter(
            self.root,
            self.data,
            entry=lambda snapshot, path: base.get(path),
            committed=self.committed,
            lock=WorkspaceLock(self.data, self.root, SystemClock()),
            clock=SystemClock(),
            notice=(lambda text: None) if notices is None else notices.append,
            step=step,
            kernel=kernel,
        )

    def leftovers(self) -> list[str]:
        """What a settled promotion must not leave: journal, stage, conflicts."""
        stages = [path.name for path in self.root.glob(".veriloop*")]
        if not self.data.exists():
            return stages
        return stages + [path.name for path in self.data.iterdir() if path.name != "lock"]


def make_ground(folder: Path) -> Ground:
    (folder / "work").mkdir(parents=True, exist_ok=True)
    return Ground(folder / "work", folder / "data", folder / "ledger")
