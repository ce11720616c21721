"""The scan of a live workspace: what is there, by `lstat`, hashing only what may have changed.

A file is hashed again when its stat key (mtime, ctime, size, inode, mode) moved, or when it was
changed so shortly before it was last hashed that a later change could have left the key as it was.
Directories are walked through open descriptors and files opened with `O_NOFOLLOW`, so a name that
becomes a link meanwhile leads nowhere. Pipes, sockets and devices are listed and never opened.
Extended attributes are not recorded: promotion keeps those of the files it exchanges.

A directory in which everything is ignored is left out; one that is truly empty is recorded.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from veriloop_tui.core.snapshot import Entry
from veriloop_tui.errors import SnapshotRefused
from veriloop_tui.store.blob import read_from_start
from veriloop_tui.store.ignore import (
    IGNORE_FILE,
    IGNORE_FILE_BYTES,
    Rules,
    is_excluded_name,
    root_rules,
)
from veriloop_tui.store.reader import (
    OPEN_DIRECTORY,
    OPEN_FILE,
    Absorb,
    AbsorbLink,
    FileReader,
    StatKey,
    hash_file,
    hash_link,
    stat_key,
)

MAX_DEPTH = 128
_RECENT_NS = 2_000_000_000

Progress = Callable[[int, int], None]
"""Told how many of how many files have been read."""


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """What a workspace may hold, ignored paths aside: files and directories, and bytes."""

    files: int = 200_000
    bytes: int = 8 << 30


@dataclass(frozen=True, slots=True)
class Skipped:
    """A path that is no file, directory or link; `kind` says what it is."""

    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class Known:
    """What an earlier scan found at a path; a `None` key means that it must be hashed again."""

    key: StatKey | None
    entry: Entry
    rules: bytes


@dataclass(frozen=True, slots=True)
class Scan:
    """One look at a workspace. `hashed` are the paths whose bytes were read."""

    entries: Mapping[str, Entry]
    skipped: tuple[Skipped, ...]
    hashed: tuple[str, ...]


def refuse_unfit_root(root: Path, home: Path, data: Path) -> None:
    """Raise `SnapshotRefused` for a folder that must not be taken as a workspace."""
    try:
        resolved = root.resolve(strict=True)
    except OSError as error:
        raise SnapshotRefused(str(root), f"it cannot be opened ({error.strerror})") from error
    if not resolved.is_dir():
        raise SnapshotRefused(str(root), "it is not a directory")
    home, data = home.resolve(), data.resolve()
    if resolved == home or resolved in home.parents:
        raise SnapshotRefused(
            str(root), "it is your home directory or above it; run in a project's folder"
        )
    if resolved == Path(resolved.anchor):
        raise SnapshotRefused(str(root), "it is the root of the file system")
    if resolved == data or resolved in data.parents or data in resolved.parents:
        raise SnapshotRefused(str(root), f"it and the program's data ({data}) lie in each other")


class Scanner:
    """Scans one workspace again and again; remembers what it saw.

    `now` gives nanoseconds since the epoch. Not for use by two threads at a time.
    """

    def __init__(
        self,
        root: Path,
        limits: ScanLimits,
        now: Callable[[], int],
        known: Mapping[str, Known],
    ) -> None:
        self._root = root
        self.limits = limits
        self._now = now
        self.known: dict[str, Known] = dict(known)
        self._rules: dict[tuple[bytes, str, bytes], Rules] = {}
        self._root_rules = root_rules()

    def scan(
        self,
        absorb: Absorb = hash_file,
        absorb_link: AbsorbLink = hash_link,
        progress: Progress | None = None,
    ) -> Scan:
        """Look at everything. Raises `SnapshotRefused` for what cannot be read, for too much, and
        for a file that keeps changing while it is read."""
        walk = _Walk(self)
        with self._open_root() as fd:
            walk.directory(fd, "", self._root_rules, 0)
            with FileReader(self._root, fd, absorb, absorb_link) as reader:
                self._read_changed(walk, reader, progress)
        for gone in self.known.keys() - walk.entries.keys():
            del self.known[gone]
        return Scan(walk.entries, tuple(walk.skipped), tuple(walk.changed))

    def _read_changed(self, walk: _Walk, reader: FileReader, progress: Progress | None) -> None:
        recent = self._now() - _RECENT_NS
        for done, path in enumerate(walk.changed, start=1):
            found = reader.read(path)
            if found is None:
                del walk.entries[path]
                continue
            key, entry = found
            fresh = key[1] > recent
            self.known[path] = Known(None if fresh else key, entry, walk.rules_of[path])
            walk.entries[path] = entry
            if progress is not None and (done % 500 == 0 or done == len(walk.changed)):
                progress(done, len(walk.changed))

    def entry_at(self, path: str) -> Entry | None:
        """What is at one path now, whatever the ignore rules say; `None` if nothing is."""
        with self._open_root() as fd, FileReader(self._root, fd, hash_file, hash_link) as reader:
            found = reader.stat(path)
            if found is None:
                return None
            if stat.S_ISDIR(found.st_mode):
                return Entry(path, "directory", stat.S_IMODE(found.st_mode), "", 0)
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
                return None
            read = reader.read(path)
            return None if read is None else read[1]

    @contextmanager
    def _open_root(self) -> Iterator[int]:
        try:
            fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise SnapshotRefused(
                str(self._root), f"it cannot be opened ({error.strerror})"
            ) from error
        try:
            yield fd
        finally:
            os.close(fd)

    def rules_in(self, above: Rules, base: str, content: bytes) -> Rules:
        """The rules of a directory with its own `.gitignore`; equal ones are one object."""
        key = (above.fingerprint, base, content)
        rules = self._rules.get(key)
        if rules is None:
            rules = self._rules[key] = Rules(above, base, content)
        return rules

    def refuse(self, path: str, problem: str) -> SnapshotRefused:
        """The error that names a path."""
        return SnapshotRefused(str(self._root), f"{path or 'its top directory'} {problem}")

    def too_much(self, files: int, size: int, path: str) -> SnapshotRefused:
        """The error with the numbers of a workspace that is beyond the limits."""
        return SnapshotRefused(
            str(self._root),
            f"it holds more than {self.limits.files} files and directories or "
            f"{self.limits.bytes} bytes ({files} and {size} bytes by the time {path} was "
            "reached); name data and derived directories in .gitignore",
        )


class _Walk:
    """One pass over the directories: finds the entries and what has to be read."""

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self._known = scanner.known
        self._limits = scanner.limits
        self._files = 0
        self._bytes = 0
        self.entries: dict[str, Entry] = {}
        self.skipped: list[Skipped] = []
        self.changed: list[str] = []
        self.rules_of: dict[str, bytes] = {}

    def directory(self, fd: int, prefix: str, rules: Rules, depth: int) -> bool:
        """Walk one open directory; whether it is to be recorded (see the module)."""
        if depth > MAX_DEPTH:
            raise self._scanner.refuse(prefix, f"lies more than {MAX_DEPTH} directories deep")
        try:
            with os.scandir(fd) as listing:
                found = list(listing)
        except OSError as error:
            raise self._scanner.refuse(prefix, f"cannot be read ({error.strerror})") from error
        for item in found:
            if item.name == IGNORE_FILE:
                rules = self._with_own_rules(fd, prefix, rules)
                break
        known, entries, fingerprint = self._known, self.entries, rules.fingerprint
        recorded = 0
        for item in found:
            name = item.name
            path = prefix + name
            before = known.get(path)
            # What was recorded under the same rules is neither excluded nor ignored now.
            same_rules = before is not None and before.rules == fingerprint
            directory = item.is_dir(follow_symlinks=False)
            if not (same_rules and before and directory == (before.entry.kind == "directory")) and (
                is_excluded_name(name) or rules.ignores(path, directory)
            ):
                continue
            try:
                seen = item.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._scanner.refuse(path, f"cannot be read ({error.strerror})") from error
            self._count(path, seen.st_size)
            if directory:
                recorded += self._subdirectory(fd, name, path, seen, rules, depth, before)
            elif same_rules and before and before.key == stat_key(seen):
                entries[path] = before.entry
                recorded += 1
            else:
                recorded += self._leaf(path, seen, fingerprint, before)
        return recorded > 0 or not found

    def _subdirectory(
        self,
        fd: int,
        name: str,
        path: str,
        seen: os.stat_result,
        rules: Rules,
        depth: int,
        before: Known | None,
    ) -> bool:
        try:
            inner = os.open(name, OPEN_DIRECTORY, dir_fd=fd)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return False
            raise self._scanner.refuse(path, f"cannot be read ({error.strerror})") from error
        mode = stat.S_IMODE(seen.st_mode)
        if before is None or before.entry.kind != "directory" or before.entry.mode != mode:
            before = Known(None, Entry(path, "directory", mode, "", 0), rules.fingerprint)
        elif before.rules != rules.fingerprint:
            before = Known(None, before.entry, rules.fingerprint)
        self.entries[path] = before.entry
        try:
            recorded = self.directory(inner, path + "/", rules, depth + 1)
        finally:
            os.close(inner)
        if recorded:
            self._known[path] = before
        else:
            del self.entries[path]
        return recorded

    def _leaf(
        self, path: str, seen: os.stat_result, fingerprint: bytes, before: Known | None
    ) -> bool:
        mode = seen.st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            self.skipped.append(Skipped(path, _kind_of(mode)))
            return False
        if before is not None and before.key == stat_key(seen):
            self.entries[path] = before.entry
            self._known[path] = Known(before.key, before.entry, fingerprint)
            return True
        self.changed.append(path)
        self.rules_of[path] = fingerprint
        # Holds the place, so that the order and the count of entries do not depend on reading.
        self.entries[path] = Entry(path, "file", 0, "", 0)
        return True

    def _count(self, path: str, size: int) -> None:
        self._files += 1
        self._bytes += size
        if self._files > self._limits.files or self._bytes > self._limits.bytes:
            raise self._scanner.too_much(self._files, self._bytes, path)

    def _with_own_rules(self, fd: int, prefix: str, rules: Rules) -> Rules:
        try:
            own = os.open(IGNORE_FILE, OPEN_FILE, dir_fd=fd)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
                return rules
            raise self._scanner.refuse(
                prefix + IGNORE_FILE, f"cannot be read ({error.strerror})"
            ) from error
        try:
            if not stat.S_ISREG(os.fstat(own).st_mode):
                return rules
            content = b"".join(read_from_start(own, IGNORE_FILE_BYTES + 1))
        finally:
            os.close(own)
        if len(content) > IGNORE_FILE_BYTES:
            raise self._scanner.refuse(
                prefix + IGNORE_FILE, f"is larger than {IGNORE_FILE_BYTES} bytes"
            )
        return self._scanner.rules_in(rules, prefix, content)


def _kind_of(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "pipe"
    if stat.S_ISSOCK(mode):
        return "socket"
    return "device"
