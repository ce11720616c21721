"""Finds the interpreters and tools that commands need where the folders around them are hidden.

Asks by `os.access`, whose answer for what this user may not see is no.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_PARTS = ("bin", "lib", "lib64", "libexec", "include")
_CACHES = (".rustup", ".cargo/registry", ".cargo/git", "go/pkg/mod", ".m2/repository")
_MAX_HOPS = 16


def toolchains(
    path: str,
    prefixes: Iterable[Path],
    home: Path,
    hidden: tuple[Path, ...],
    private: tuple[Path, ...],
) -> tuple[Path, ...]:
    """The folders and files below `hidden` ones that must be shown again, read-only.

    They are what the entries of `path` (as in $PATH) and the installations `prefixes` need.
    Never the home folder itself, nor anything that holds a hidden folder, nor anything that holds
    or lies in a `private` one.
    """
    folders = [Path(entry) for entry in path.split(os.pathsep) if entry.startswith("/")]
    wanted: set[Path] = {home / cache for cache in _CACHES}
    for folder in (*folders, *(prefix / "bin" for prefix in prefixes)):
        wanted.update(_needed_by(folder, home))
    shown = {
        place
        for place in wanted
        if os.access(place, os.F_OK)
        and any(_is_below(place, folder) for folder in hidden)
        and not any(_is_below(folder, place) for folder in (home, *hidden, *private))
        and not any(_is_below(place, folder) for folder in private)
    }
    return tuple(sorted(p for p in shown if not any(_is_below(p, o) for o in shown - {p})))


def _is_below(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def _needed_by(folder: Path, home: Path) -> Iterator[Path]:
    """What the executables of one folder need: its installation, and where its links lead."""
    yield from _installation(folder, home)
    yield from _installation(Path(os.path.realpath(folder)), home)
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink():
            for target in _hops(Path(entry.path)):
                yield from _installation(target.parent, home)


def _hops(link: Path) -> Iterator[Path]:
    """Each path that following a link leads through, the last one wholly resolved."""
    current = link
    for _ in range(_MAX_HOPS):
        try:
            target = current.readlink()
        except OSError:
            break
        current = Path(os.path.normpath(current.parent / target))
        yield current
    yield Path(os.path.realpath(link))


def _installation(folder: Path, home: Path) -> Iterator[Path]:
    prefix = folder.parent
    if folder.name == "shims" and os.access(prefix / "versions", os.F_OK):
        yield prefix
    elif folder.name != "bin":
        yield folder
    elif prefix != home / ".local" and _is_python(prefix):
        yield prefix
        yield from _base_of_venv(prefix, home)
    else:
        # Such a prefix may hold credentials beside the tools: show only the usual parts.
        yield from (prefix / part for part in _PARTS)


def _is_python(prefix: Path) -> bool:
    if any(os.access(prefix / sign, os.F_OK) for sign in ("pyvenv.cfg", "conda-meta")):
        return True
    try:
        return any(entry.name.startswith("python3") for entry in (prefix / "lib").iterdir())
    except OSError:
        return False


def _base_of_venv(prefix: Path, home: Path) -> Iterator[Path]:
    try:
        lines = (prefix / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        key, _, value = line.partition("=")
        base = Path(value.strip())
        if key.strip() == "home" and base.is_absolute() and base.parent != prefix:
            yield from _installation(base, home)
            yield from _installation(Path(os.path.realpath(base)), home)
