"""The stat cache: what the last snapshot saw at each path, so that a new process need not hash.

It is only ever a saving. A row whose blob is not stored is not used, and a damaged key or path
only makes a file be hashed again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping

from veriloop_tui.core.snapshot import Entry, EntryKind
from veriloop_tui.store.scan import Known

_IS_LINK = 0o120000
_FORMAT = 0o170000


def load(connection: sqlite3.Connection) -> dict[str, Known]:
    """Every usable row, by path."""
    rows = connection.execute(
        "SELECT path, mtime, ctime, size, inode, mode, digest, rules"
        " FROM stat_cache WHERE digest IN (SELECT digest FROM blobs)"
    )
    known = {}
    for raw, mtime, ctime, size, inode, mode, digest, rules in rows:
        path = os.fsdecode(raw)
        kind: EntryKind = "symlink" if mode & _FORMAT == _IS_LINK else "file"
        bits = 0o777 if kind == "symlink" else mode & 0o7777
        known[path] = Known(
            (mtime, ctime, size, inode, mode), Entry(path, kind, bits, digest.hex(), size), rules
        )
    return known


def save(
    connection: sqlite3.Connection, before: Mapping[str, Known], after: Mapping[str, Known]
) -> None:
    """Bring the table from `before` to `after`; files that must be hashed again have no row."""
    rows = [
        (
            os.fsencode(path),
            *known.key,
            bytes.fromhex(known.entry.digest),
            known.rules,
        )
        for path, known in after.items()
        if known.key is not None and before.get(path) is not known
    ]
    gone = [
        (os.fsencode(path),)
        for path, known in before.items()
        if known.key is not None and (path not in after or after[path].key is None)
    ]
    connection.executemany("DELETE FROM stat_cache WHERE path = ?", gone)
    connection.executemany(
        "INSERT OR REPLACE INTO stat_cache VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows
    )
