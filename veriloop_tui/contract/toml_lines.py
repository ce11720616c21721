"""Where each key of a TOML document stands, which `tomllib` does not tell. Pure.

The scan relies on the text being valid TOML; it only has to find keys, not to judge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRINGS = (
    re.compile(r'"""(?:\\.|[^\\])*?"{3,5}', re.DOTALL),
    re.compile(r"'''.*?'{3,5}", re.DOTALL),
    re.compile(r'"(?:\\.|[^"\\\n])*"'),
    re.compile(r"'[^'\n]*'"),
)
_SCALAR = re.compile(r"[^,\]}\n#]*")


def key_lines(text: str) -> Mapping[Path, int]:
    """1-based line of every table, array element and key, by its path from the root."""
    return _Scan(text).run()


def line_of(lines: Mapping[Path, int], path: Path) -> int:
    """The line of `path` or of the nearest table around it; 0 if there is none."""
    for end in range(len(path), 0, -1):
        if line := lines.get(path[:end]):
            return line
    return 0


class _Scan:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}
        self._counted = 0
        self._line = 1

    def run(self) -> Mapping[Path, int]:
        table: Path = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text.startswith("[[", self._at):
                table = self._header(2)
            elif self._text.startswith("[", self._at):
                table = self._header(1)
            else:
                self._pair(table)
            self._skip(_BLANK)
        return self._lines

    def _header(self, brackets: int) -> Path:
        start = self._at
        self._at += brackets
        *parents, last = self._key()
        path = (*self._resolve(parents), last)
        self._at += brackets
        if brackets == 2:
            index = self._counts.get(path, 0)
            self._counts[path] = index + 1
            self._record(path, start)
            path = (*path, index)
        self._record(path, start)
        return path

    def _resolve(self, parts: list[str]) -> Path:
        """In a header, the name of an array of tables means its last element."""
        path: Path = ()
        for part in parts:
            path = (*path, part)
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
        return path

    def _pair(self, table: Path) -> None:
        start = self._at
        path = table
        for part in self._key():
            path = (*path, part)
            self._record(path, start)
        self._at += 1
        self._value(path)

    def _key(self) -> list[str]:
        """A dotted key; leaves the scan behind it and the blanks that follow."""
        parts = []
        while True:
            self._skip(_SPACE)
            start = self._at
            quoted = self._string()
            if not quoted:
                self._skip(_BARE_KEY)
            parts.append(self._text[start + quoted : self._at - quoted])
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return parts
            self._at += 1

    def _value(self, path: Path) -> None:
        self._skip(_SPACE)
        if self._string():
            return
        opening = self._text[self._at : self._at + 1]
        if opening == "[":
            self._items(path)
        elif opening == "{":
            self._inline_table(path)
        else:
            # At least one character, so that the scan ends on any text.
            self._at += 1
            self._skip(_SCALAR)

    def _items(self, path: Path) -> None:
        index = 0
        while self._next("]"):
            self._record((*path, index), self._at)
            self._value((*path, index))
            index += 1

    def _inline_table(self, path: Path) -> None:
        while self._next("}"):
            self._pair(path)

    def _next(self, closing: str) -> bool:
        """Step over an opening bracket or a comma; False behind the closing bracket."""
        if self._text.startswith(("[", "{", ","), self._at):
            self._at += 1
        self._skip(_BLANK)
        if self._text.startswith(",", self._at):
            self._at += 1
            self._skip(_BLANK)
        if self._at >= len(self._text):
            return False
        if self._text.startswith(closing, self._at):
            self._at += 1
            return False
        return True

    def _string(self) -> bool:
        for pattern in _STRINGS:
            if found := pattern.match(self._text, self._at):
                self._at = found.end()
                return True
        return False

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _record(self, path: Path, at: int) -> None:
        self._line += self._text.count("\n", self._counted, at)
        self._counted = at
        self._lines.setdefault(path, self._line)
