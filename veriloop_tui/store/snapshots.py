"""Snapshots of one workspace: the way from live files to ids and back to bytes."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from veriloop_tui.core.snapshot import Candidate, Change, Delete, Entry, SnapshotId, Write
from veriloop_tui.errors import SnapshotNotFound, StoreDamaged
from veriloop_tui.store import stat_cache, tree
from veriloop_tui.store.blob import BlobReader, BlobStore
from veriloop_tui.store.candidate import resolve
from veriloop_tui.store.database import Database, naming_damage, transaction
from veriloop_tui.store.ignore import IGNORE_FILE, IGNORE_FILE_BYTES, Rules, root_rules
from veriloop_tui.store.reader import Absorb, AbsorbLink, hash_file, hash_link
from veriloop_tui.store.scan import (
    Known,
    Progress,
    Scan,
    ScanLimits,
    Scanner,
    Skipped,
    refuse_unfit_root,
)

_MANIFESTS = 8


class StoredSnapshots:
    """Snapshots as they were recorded; nothing here looks at the live files.

    May be used from several threads. Raises `SnapshotNotFound` for an id that was never recorded
    and `StoreDamaged` for bytes that are not what was written.
    """

    def __init__(self, connection: sqlite3.Connection, blobs: BlobReader) -> None:
        self._connection = connection
        self._blobs = blobs
        self._lock = threading.RLock()
        self._manifests: OrderedDict[str, dict[str, Entry]] = OrderedDict()

    @classmethod
    def on(cls, connection: sqlite3.Connection, segments: Path) -> StoredSnapshots:
        """The recorded snapshots behind a connection, such as that of `database.reading`."""
        return cls(connection, BlobReader(connection, segments))

    def entries(self, snapshot: SnapshotId) -> Mapping[str, Entry]:
        """All paths of a snapshot."""
        return MappingProxyType(self._manifest(snapshot))

    def read(self, snapshot: SnapshotId, path: str) -> bytes:
        """A file's bytes. Raises `KeyError` if the snapshot has no such file."""
        entry = self._manifest(snapshot).get(path)
        if entry is None or entry.kind != "file":
            raise KeyError(path)
        return self._blobs.read(entry.digest)

    def link_target(self, snapshot: SnapshotId, path: str) -> bytes:
        """Where a symbolic link points. Raises `KeyError` if the snapshot has no such link."""
        entry = self._manifest(snapshot).get(path)
        if entry is None or entry.kind != "symlink":
            raise KeyError(path)
        return self._blobs.read(entry.digest)

    def diff(self, before: SnapshotId, after: SnapshotId) -> tuple[tree.PathDifference, ...]:
        """Every path whose entry differs, in order."""
        self._require(before)
        self._require(after)
        with self._naming_tree():
            return tuple(tree.diff(before, after, self._blobs.read))

    def changes_between(self, old: SnapshotId, new: SnapshotId) -> tuple[Change, ...]:
        """The changes that turn the files of one snapshot into those of another, by path.

        Links and directories are not files: `diff` shows how they differ. Where a file takes the
        place of one, its `Write` is here, and no candidate will accept it.
        """
        changes: list[Change] = []
        for difference in self.diff(old, new):
            before, after = difference.before, difference.after
            if after is not None and after.kind == "file":
                content = self._blobs.read(after.digest)
                changes.append(Write(difference.path, content, after.mode))
            elif before is not None and before.kind == "file":
                changes.append(Delete(difference.path))
        return tuple(changes)

    def _manifest(self, snapshot: str) -> dict[str, Entry]:
        with self._lock:
            found = self._manifests.get(snapshot)
            if found is None:
                self._require(snapshot)
                with self._naming_tree():
                    found = tree.flatten(snapshot, self._blobs.read)
                self._remember(snapshot, found)
            else:
                self._manifests.move_to_end(snapshot)
            return found

    def _remember(self, snapshot: str, manifest: dict[str, Entry]) -> None:
        self._manifests[snapshot] = manifest
        self._manifests.move_to_end(snapshot)
        while len(self._manifests) > _MANIFESTS:
            self._manifests.popitem(last=False)

    def _require(self, snapshot: str) -> None:
        try:
            raw = bytes.fromhex(snapshot)
        except ValueError as error:
            raise SnapshotNotFound(snapshot) from error
        with self._lock, naming_damage("table snapshots"):
            row = self._connection.execute(
                "SELECT 1 FROM snapshots WHERE id = ?", (raw,)
            ).fetchone()
        if row is None:
            raise SnapshotNotFound(snapshot)

    @contextmanager
    def _naming_tree(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise StoreDamaged("a tree object", str(error)) from error


class WorkspaceSnapshots(StoredSnapshots):
    """The `Snapshots` port: records the live workspace and candidates that are based on it.

    Keep one for the life of the process: it remembers what it saw, so that only changed files are
    read again. `now` gives nanoseconds since the epoch; `progress` is told how many of how many
    files have been read. Raises `SnapshotRefused` at once for a folder that is no workspace.
    """

    def __init__(
        self,
        root: Path,
        database: Database,
        *,
        home: Path,
        limits: ScanLimits | None = None,
        now: Callable[[], int] = time.time_ns,
        progress: Progress | None = None,
    ) -> None:
        refuse_unfit_root(root, home, database.directory)
        connection = database.connect()
        self._store = BlobStore(connection, database.segments)
        super().__init__(connection, self._store)
        self._progress = progress
        self._saved = self._load_stat_cache()
        self._scanner = Scanner(root.resolve(), limits or ScanLimits(), now, self._saved)
        self._last: tuple[str, dict[str, Entry]] = (tree.EMPTY_DIGEST, {})
        self._not_stored: set[str] = set()
        self._moves = 0
        self.skipped: tuple[Skipped, ...] = ()
        """Pipes, sockets and devices that the last scan passed by."""

    def take(self) -> SnapshotId:
        """Record the workspace as it is now. Raises `SnapshotRefused`, `StoreError`."""
        with self._lock:
            scan = self._scan_and_store()
            root, entries = self._last
            snapshot = SnapshotId(root)
            if scan.hashed or snapshot not in self._manifests:
                self._record(snapshot, with_stat_cache=True)
            self._remember(snapshot, entries)
            return snapshot

    def drift(self, snapshot: SnapshotId) -> tuple[str, ...]:
        """Paths where the live workspace differs from the snapshot, from a full stat scan.

        A path of the snapshot that is ignored by now differs only if its bytes or mode do.
        """
        with self._lock:
            base = self._manifest(snapshot)
            scan = self._look()
            self.skipped = scan.skipped
            self._not_stored.update(scan.hashed)
            live = scan.entries
            differing = [
                path
                for path, entry in live.items()
                if (other := base.get(path)) is not entry and other != entry
            ]
            differing += [
                path
                for path in base.keys() - live.keys()
                if self._scanner.entry_at(path) != base[path]
            ]
            return tuple(sorted(differing))

    def candidate(self, candidate: Candidate) -> SnapshotId:
        """Record base plus changes, without looking at the workspace. Raises `InvalidEdit`."""
        with self._lock:
            base = self._manifest(candidate.base)
            edits = resolve(base, candidate.changes, self._ignored_in(candidate.base))
            with self._naming_tree():
                root, objects = tree.edit(candidate.base, edits, self._blobs.read)
            snapshot = SnapshotId(root)
            if snapshot in self._manifests:
                return snapshot
            with self._store.batch() as batch:
                for change in candidate.changes:
                    if isinstance(change, Write):
                        batch.add(change.content)
                for content in objects.values():
                    batch.add(content)
            self._record(snapshot, with_stat_cache=False)
            self._remember(snapshot, _apply(base, edits))
            return snapshot

    def seen(self) -> int:
        """A number that is the same for as long as no look at the live workspace found it moved.

        A file that was touched and put back has moved too: a command may have read it meanwhile.
        """
        return self._moves

    def look_again(self) -> int:
        """What `seen` tells after another look. Raises `SnapshotRefused`, `StoreError`."""
        with self._lock:
            self._not_stored.update(self._look().hashed)
            return self._moves

    def stored_bytes(self) -> int:
        """What the segments take on disk, for the budget of store bytes."""
        with self._lock:
            return self._store.stored_bytes()

    def _look(
        self,
        absorb: Absorb = hash_file,
        absorb_link: AbsorbLink = hash_link,
        progress: Progress | None = None,
    ) -> Scan:
        before = dict(self._scanner.known)
        scan = self._scanner.scan(absorb, absorb_link, progress)
        self._moves += _has_moved(before, self._scanner.known)
        return scan

    def _scan_and_store(self) -> Scan:
        known = self._scanner.known
        for path in self._not_stored & known.keys():
            # An earlier scan only hashed it: without a key it is read again, and stored.
            known[path] = Known(None, known[path].entry, known[path].rules)
        base_root, base = self._last
        stored = False
        try:
            with self._store.batch() as batch:
                scan = self._look(batch.add_open_file, batch.add, self._progress)
                edits: dict[str, Entry | None] = {
                    path: entry
                    for path, entry in scan.entries.items()
                    if (other := base.get(path)) is not entry and other != entry
                }
                edits.update(dict.fromkeys(base.keys() - scan.entries.keys()))
                with self._naming_tree():
                    root, objects = tree.edit(base_root, edits, self._blobs.read)
                for content in objects.values():
                    batch.add(content)
            stored = True
        finally:
            if not stored:
                # Files may have been marked as seen whose bytes never reached a segment.
                self._scanner.known.clear()
        self._not_stored.clear()
        self.skipped = scan.skipped
        self._last = (root, dict(scan.entries))
        return scan

    def _record(self, snapshot: SnapshotId, *, with_stat_cache: bool) -> None:
        with naming_damage("table snapshots"), transaction(self._connection):
            self._connection.execute(
                "INSERT OR IGNORE INTO snapshots VALUES (?)", (bytes.fromhex(snapshot),)
            )
            if with_stat_cache:
                stat_cache.save(self._connection, self._saved, self._scanner.known)
        if with_stat_cache:
            self._saved = dict(self._scanner.known)

    def _load_stat_cache(self) -> dict[str, Known]:
        with naming_damage("table stat_cache"):
            return stat_cache.load(self._connection)

    def _ignored_in(self, snapshot: SnapshotId) -> Callable[[str], bool]:
        """Whether a path that is not in the snapshot would be left out of a scan of it."""
        base = self._manifest(snapshot)

        def with_own(rules: Rules, prefix: str) -> Rules:
            entry = base.get(prefix + IGNORE_FILE)
            if entry is None or entry.kind != "file" or entry.size > IGNORE_FILE_BYTES:
                return rules
            return self._scanner.rules_in(rules, prefix, self._blobs.read(entry.digest))

        def ignored(path: str) -> bool:
            rules, prefix = with_own(root_rules(), ""), ""
            for part in path.split("/")[:-1]:
                if rules.ignores(prefix + part, directory=True):
                    return True
                prefix += part + "/"
                rules = with_own(rules, prefix)
            return rules.ignores(path, directory=False)

        return ignored


def _has_moved(before: Mapping[str, Known], after: Mapping[str, Known]) -> bool:
    """Whether two looks differ: in what is there, or in a stat key that was settled."""
    if before.keys() != after.keys():
        return True
    return any(
        old is not new and (old.entry != new.entry or (old.key not in (None, new.key)))
        for old, new in zip(before.values(), map(after.__getitem__, before), strict=True)
    )


def _apply(base: Mapping[str, Entry], edits: Mapping[str, Entry | None]) -> dict[str, Entry]:
    after = dict(base)
    for path, entry in edits.items():
        if entry is None:
            after.pop(path, None)
        else:
            after[path] = entry
    return after
