"""Trees: one object per directory, named by the sha256 of its bytes, so equal trees are one.

An object lists its children in order of their names' bytes. Each child is its kind, its full
permission bits, its size, a sha256 (of a file's bytes, of a link's target, of a directory's own
object) and its name as the bytes the file system has. Empty directories are objects too. There is
exactly one encoding of each directory. Everything here is pure; objects are fetched through `Read`.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from veriloop_tui.core.snapshot import Entry, EntryKind

Read = Callable[[str], bytes]
"""Fetches an object by its digest."""

_MAGIC = b"veriloop-tree-1\n"
_CHILD = struct.Struct(">cHQ32sH")
_KIND_TO_CODE: dict[EntryKind, bytes] = {"file": b"f", "symlink": b"l", "directory": b"d"}
_CODE_TO_KIND = {code: kind for kind, code in _KIND_TO_CODE.items()}


@dataclass(frozen=True, slots=True)
class Child:
    """One name of a directory; `digest` is its object's where it is a directory itself."""

    name: str
    kind: EntryKind
    mode: int
    digest: str
    size: int


def encode(children: Iterable[Child]) -> bytes:
    """The object of a directory. Raises `ValueError` for a name no directory can hold."""
    parts = [_MAGIC]
    named = sorted((os.fsencode(child.name), child) for child in children)
    for name, child in named:
        parts.append(
            _CHILD.pack(
                _KIND_TO_CODE[child.kind],
                child.mode,
                child.size,
                bytes.fromhex(child.digest),
                len(name),
            )
        )
        parts.append(name)
    _check_names([name for name, _ in named])
    return b"".join(parts)


def decode(content: bytes) -> tuple[Child, ...]:
    """The children of a directory. Raises `ValueError` if it is not exactly an encoding."""
    if not content.startswith(_MAGIC):
        raise ValueError("not a tree object")
    children, names, at = [], [], len(_MAGIC)
    while at < len(content):
        if at + _CHILD.size > len(content):
            raise ValueError("a tree object is cut short")
        code, mode, size, digest, length = _CHILD.unpack_from(content, at)
        at += _CHILD.size
        name = content[at : at + length]
        at += length
        kind = _CODE_TO_KIND.get(code)
        if kind is None or len(name) != length or mode > 0o7777:
            raise ValueError("a tree object has an impossible child")
        names.append(name)
        children.append(Child(os.fsdecode(name), kind, mode, digest.hex(), size))
    if names != sorted(names):
        raise ValueError("a tree object is out of order")
    _check_names(names)
    return tuple(children)


def _check_names(names: list[bytes]) -> None:
    if len(set(names)) != len(names):
        raise ValueError("a directory cannot hold one name twice")
    for name in names:
        if name in (b"", b".", b"..") or b"/" in name or b"\0" in name:
            raise ValueError(f"a directory cannot hold the name {name!r}")


def object_digest(content: bytes) -> str:
    """The name of an object."""
    return hashlib.sha256(content).hexdigest()


EMPTY = encode(())
EMPTY_DIGEST = object_digest(EMPTY)


def flatten(root: str, read: Read) -> dict[str, Entry]:
    """Every path under a root. Raises `ValueError` for an object that is no tree."""
    entries: dict[str, Entry] = {}
    todo = [("", root)]
    while todo:
        prefix, digest = todo.pop()
        for child in decode(_fetch(digest, read)):
            path = prefix + child.name
            entries[path] = _entry(path, child)
            if child.kind == "directory":
                todo.append((path + "/", child.digest))
    return entries


def _entry(path: str, child: Child) -> Entry:
    if child.kind == "directory":
        return Entry(path, "directory", child.mode, "", 0)
    return Entry(path, child.kind, child.mode, child.digest, child.size)


def edit(
    root: str, changes: Mapping[str, Entry | None], read: Read
) -> tuple[str, dict[str, bytes]]:
    """The root after setting (or with `None` removing) paths, and the new objects it needs.

    A directory's own entry must be there or among the changes; removing one removes what is in
    it. Only touched directories are read. Raises `ValueError` for a path without its directory.
    """
    touched: dict[str, dict[str, Entry | None]] = {"": {}}
    for path, entry in changes.items():
        parent, _, name = path.rpartition("/")
        touched.setdefault(parent, {})[name] = entry
        while parent and (above := parent.rpartition("/")[0]) not in touched:
            touched[above] = {}
            parent = above
    inside: dict[str, list[str]] = {}
    for directory in touched:
        if directory:
            above, _, name = directory.rpartition("/")
            inside.setdefault(above, []).append(name)
    objects = {EMPTY_DIGEST: EMPTY}

    def rewrite(directory: str, digest: str) -> str:
        children = {child.name: child for child in decode(_fetch(digest, read))}
        for name, entry in touched[directory].items():
            if entry is None:
                children.pop(name, None)
            else:
                children[name] = _child(name, entry, children.get(name))
        for name in inside.get(directory, ()):
            path = f"{directory}/{name}" if directory else name
            child = children.get(name)
            if child is not None and child.kind == "directory":
                children[name] = replace(child, digest=rewrite(path, child.digest))
            elif any(entry is not None for entry in touched[path].values()):
                raise ValueError(f"{path} is not a directory of this tree")
        content = encode(children.values())
        name_of_it = object_digest(content)
        if name_of_it != digest:
            objects[name_of_it] = content
        return name_of_it

    return rewrite("", root), objects


def _fetch(digest: str, read: Read) -> bytes:
    return EMPTY if digest == EMPTY_DIGEST else read(digest)


def _child(name: str, entry: Entry, before: Child | None) -> Child:
    if entry.kind != "directory":
        return Child(name, entry.kind, entry.mode, entry.digest, entry.size)
    kept = before is not None and before.kind == "directory"
    return Child(
        name, "directory", entry.mode, before.digest if before and kept else EMPTY_DIGEST, 0
    )


@dataclass(frozen=True, slots=True)
class PathDifference:
    """One path in two snapshots; `None` where it is absent."""

    path: str
    before: Entry | None
    after: Entry | None


def diff(before: str, after: str, read: Read) -> Iterator[PathDifference]:
    """What differs between two roots, in order of path; equal subtrees are not looked at."""
    found = list(_diff("", before, after, read))
    yield from sorted(found, key=lambda difference: os.fsencode(difference.path))


def _diff(prefix: str, before: str, after: str, read: Read) -> Iterator[PathDifference]:
    if before == after:
        return
    old = {child.name: child for child in decode(_fetch(before, read))}
    new = {child.name: child for child in decode(_fetch(after, read))}
    for name in old.keys() | new.keys():
        was, now, path = old.get(name), new.get(name), prefix + name
        if was == now:
            continue
        was_entry = None if was is None else _entry(path, was)
        now_entry = None if now is None else _entry(path, now)
        if was_entry != now_entry:
            yield PathDifference(path, was_entry, now_entry)
        yield from _diff(path + "/", _directory_digest(was), _directory_digest(now), read)


def _directory_digest(child: Child | None) -> str:
    return child.digest if child is not None and child.kind == "directory" else EMPTY_DIGEST
