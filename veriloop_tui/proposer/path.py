"""Which paths of an answer may be touched at all. Pure; links are the store's to check."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath

from veriloop_tui.errors import InvalidEdit

_MAX_PART = 255
_MAX_PATH = 1024


def confined_path(named: str, protects: Callable[[str], bool]) -> str:
    """The path in the form that snapshots use.

    Raises `InvalidEdit` for a path that could leave the workspace, that no portable file can
    have, that belongs to git, or that is protected.
    """
    shown = named[:200]
    if not named.strip() or len(named) > _MAX_PATH:
        raise InvalidEdit("the path is empty or too long", shown)
    if "\\" in named or re.search(r"[\x00-\x1f\x7f]", named):
        raise InvalidEdit("the path holds a backslash or a control character", ascii(shown))
    if named.startswith(("/", "~")) or re.match(r"[A-Za-z]:", named):
        raise InvalidEdit("the path must be relative to the workspace", shown)
    parts = PurePosixPath(named).parts
    if not parts or ".." in parts or named.endswith("/"):
        raise InvalidEdit("the path must name a file inside the workspace, without '..'", shown)
    if any(part.casefold() == ".git" for part in parts):
        raise InvalidEdit("the path belongs to git", shown)
    if any(len(part.encode()) > _MAX_PART for part in parts):
        raise InvalidEdit("a part of the path is too long", shown)
    path = "/".join(parts)
    if protects(path):
        raise InvalidEdit("is protected; a proposal must not touch it", path)
    return path
