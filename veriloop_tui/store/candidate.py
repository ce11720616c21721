"""What a candidate's changes make of a base snapshot; the place where bad paths end.

Everything here is pure. `InvalidEdit` is raised for every change that cannot apply as it stands.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from veriloop_tui.core.snapshot import Change, Delete, Entry, Write
from veriloop_tui.errors import InvalidEdit
from veriloop_tui.store.ignore import STAGE_PREFIX
from veriloop_tui.store.scan import MAX_DEPTH

NEW_FILE_MODE = 0o644
NEW_DIRECTORY_MODE = 0o755
_NAME_BYTES = 255
_PATH_BYTES = 3000
_SPECIAL_BITS = 0o7000


def resolve(
    base: Mapping[str, Entry], changes: Sequence[Change], ignored: Callable[[str], bool]
) -> dict[str, Entry | None]:
    """The entry that each touched path gets, `None` where it goes; new directories included.

    A new file's directories are made with mode 0o755; a directory that becomes empty stays.
    `ignored` says of a path that is not in the base whether snapshots leave it out.
    """
    after: dict[str, Entry | None] = {}
    for change in changes:
        path = change.path
        check_path(path)
        if path in after:
            raise InvalidEdit("two changes name one path", path)
        before = base.get(path)
        _check_parents(base, path)
        _check_target(before, path)
        match change:
            case Write():
                if before is None and ignored(path):
                    raise InvalidEdit("it is ignored by .gitignore, so it cannot be kept", path)
                after[path] = _written(change, before)
            case Delete():
                if before is None:
                    raise InvalidEdit("there is no such file to delete", path)
                after[path] = None
            case _:
                assert_never(change)
    _add_directories(base, after)
    _refuse_look_alikes(base, after)
    return after


def check_path(path: str) -> None:
    """Raise `InvalidEdit` unless the path is relative, plain, and stays below the workspace."""
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError as error:
        raise InvalidEdit("the path cannot be written in this file system's encoding") from error
    if path.startswith("/"):
        raise InvalidEdit("the path must be relative to the workspace", path)
    if "\\" in path:
        raise InvalidEdit("the path must use / between its parts", path)
    if len(encoded) > _PATH_BYTES or path.count("/") >= MAX_DEPTH:
        raise InvalidEdit("the path is too long", path[:_NAME_BYTES])
    for part in path.split("/"):
        if part in ("", ".", ".."):
            raise InvalidEdit("the path must not have empty, '.' or '..' parts", path)
        if any(unicodedata.category(char) in ("Cc", "Cf") for char in part):
            raise InvalidEdit("the path must not hold control or invisible characters", path)
        if len(os.fsencode(part)) > _NAME_BYTES:
            raise InvalidEdit(f"a part of the path is longer than {_NAME_BYTES} bytes", path)
        folded = _fold(part).rstrip(" .")
        if folded in (".git", "git~1") or folded.split(":")[0] == ".git":
            raise InvalidEdit("git's own directory cannot be changed", path)
        if folded.startswith(STAGE_PREFIX):
            raise InvalidEdit("names that begin like this are kept for promotion", path)


def _check_parents(base: Mapping[str, Entry], path: str) -> None:
    for parent in _parents(path):
        entry = base.get(parent)
        if entry is not None and entry.kind == "symlink":
            raise InvalidEdit(f"the path runs through the symbolic link {parent}", path)
        if entry is not None and entry.kind == "file":
            raise InvalidEdit(f"the path runs through the file {parent}", path)


def _check_target(before: Entry | None, path: str) -> None:
    if before is None or before.kind == "file":
        return
    what = "a directory" if before.kind == "directory" else "a symbolic link"
    raise InvalidEdit(f"it is {what}, and only files can be changed", path)


def _written(change: Write, before: Entry | None) -> Entry:
    kept = NEW_FILE_MODE if before is None else before.mode
    mode = kept if change.mode is None else change.mode
    if not 0 <= mode <= 0o7777 or (mode & _SPECIAL_BITS and mode != kept):
        raise InvalidEdit(f"the mode {mode:o} cannot be given to a file", change.path)
    content = change.content
    digest = hashlib.sha256(content).hexdigest()
    return Entry(change.path, "file", mode, digest, len(content))


def _add_directories(base: Mapping[str, Entry], after: dict[str, Entry | None]) -> None:
    for path, entry in list(after.items()):
        if entry is None:
            continue
        for parent in _parents(path):
            if parent in base:
                continue
            if (there := after.get(parent)) is not None and there.kind != "directory":
                raise InvalidEdit(f"the path runs through the new file {parent}", path)
            after[parent] = Entry(parent, "directory", NEW_DIRECTORY_MODE, "", 0)


def _refuse_look_alikes(base: Mapping[str, Entry], after: Mapping[str, Entry | None]) -> None:
    """Two names that some file systems take for one must not come to lie side by side."""
    created = [path for path, entry in after.items() if entry is not None and path not in base]
    if not created:
        return
    wanted = {path.rpartition("/")[0] for path in created}
    taken: dict[tuple[str, str], str] = {}
    for path in base:
        parent, _, name = path.rpartition("/")
        if parent in wanted and after.get(path, base[path]) is not None:
            taken[parent, _fold(name)] = path
    for path in created:
        parent, _, name = path.rpartition("/")
        other = taken.setdefault((parent, _fold(name)), path)
        if other != path:
            raise InvalidEdit(f"its name differs from {other} only in case or in encoding", path)


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]
