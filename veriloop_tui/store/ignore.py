"""Which paths of a workspace are left out of its snapshots: `.gitignore` at every level.

The last matching pattern of the nearest file that has one decides, as in git; what lies in an
ignored directory cannot be taken back in. A few directories that tools fill from other sources
come first, with the lowest precedence, so that a root `.gitignore` can take them back in. Git's
own other sources (its index, `info/exclude`, the user's global file) are not looked at: they are
not part of the workspace. A line that git would not accept as a pattern is skipped, as git does.
"""

from __future__ import annotations

import hashlib
import os

from pathspec import GitIgnoreSpec

IGNORE_FILE = ".gitignore"
IGNORE_FILE_BYTES = 1 << 20
"""A larger `.gitignore` is refused: matching it would take for ever."""

STAGE_PREFIX = ".veriloop-stage-"
"""Names that begin so belong to a promotion under way and are never part of a snapshot."""

_DERIVED = b"__pycache__/\n*.pyc\nnode_modules/\n.venv/\n.tox/\n.nox/\n"


class Rules:
    """The ignore rules in force in one directory; `fingerprint` is equal for equal rules."""

    __slots__ = ("_above", "_base", "_spec", "_verdicts", "fingerprint")

    def __init__(self, above: Rules | None, base: str, content: bytes) -> None:
        self._above = above
        self._base = len(base)
        self._spec = GitIgnoreSpec.from_lines(_acceptable(content))
        self._verdicts: dict[str, bool] = {}
        seed = above.fingerprint if above is not None else b""
        self.fingerprint: bytes = hashlib.sha256(
            seed + os.fsencode(base) + b"\0" + content
        ).digest()[:16]

    def ignores(self, path: str, directory: bool) -> bool:
        """Whether a path (relative to the workspace, in or below these rules' directory) is out."""
        key = path + "/" if directory else path
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._verdicts[key] = bool(self._decide(key))
        return verdict

    def _decide(self, key: str) -> bool | None:
        include = self._spec.check_file(key[self._base :]).include
        if include is None and self._above is not None:
            return self._above._decide(key)
        return include


def root_rules() -> Rules:
    """The rules before any `.gitignore` has been read."""
    return Rules(None, "", _DERIVED)


def is_excluded_name(name: str) -> bool:
    """Whether a name is never looked at, whatever the rules say."""
    return name == ".git" or name.startswith(STAGE_PREFIX)


def _acceptable(content: bytes) -> list[str]:
    lines = []
    for raw in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        line = os.fsdecode(raw.removesuffix(b"\r"))
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue
        lines.append(line)
    return lines
