"""From an answer's text to the edits it means. Pure; every form is accepted at any time.

Strict about where an edit goes, lenient about fences and trailing blanks. Whatever cannot be read
with certainty is `InvalidEdit`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from veriloop_tui.errors import InvalidEdit
from veriloop_tui.proposer.source import definitions_in


@dataclass(frozen=True, slots=True)
class Replace:
    """The lines `search`, found once in the file at `path`, become the lines `replacement`."""

    path: str
    search: tuple[str, ...]
    replacement: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Create:
    """A new file at `path` with these lines."""

    path: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remove:
    """The file at `path` goes away."""

    path: str


@dataclass(frozen=True, slots=True)
class Rename:
    """The file at `path` moves to `to`."""

    path: str
    to: str


@dataclass(frozen=True, slots=True)
class Whole:
    """The file at `path` gets these lines and no others."""

    path: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Define:
    """The one function or class called `name` in the file the prompt named becomes `source`."""

    name: str
    source: str


Edit = Replace | Create | Remove | Rename | Whole | Define

_BLOCK_START = re.compile(r"<{7} ?(SEARCH|DELETE|RENAME)\s*")
_DIVIDER = re.compile(r"={7}\s*")
_BLOCK_END = re.compile(r">{7} ?(REPLACE|DELETE|RENAME)\s*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`]*)")
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#-]+")
_BARE_PATH = re.compile(r"[^\s`<>|*\"']+")


class _Kind(Enum):
    """What ends each kind of block."""

    SEARCH = "REPLACE"
    DELETE = "DELETE"
    RENAME = "RENAME"


@dataclass(frozen=True, slots=True)
class _Fence:
    mark: str
    info: str

    def closed_by(self, line: str) -> bool:
        stripped = line.strip()
        return set(stripped) == {self.mark[0]} and len(stripped) >= len(self.mark)


def parse_edits(text: str) -> tuple[Edit, ...]:
    """All edits of one answer, in order; they form one candidate.

    Raises `InvalidEdit` for an answer without edits and for blocks that are broken, unfinished or
    name no file.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidEdit("the answer holds characters that no file can hold") from None
    edits = _Reader([line.rstrip("\r") for line in text.split("\n")]).read()
    if not edits:
        raise InvalidEdit("the answer holds no edit")
    return tuple(edits)


class _Reader:
    """Reads the lines once, from top to bottom; `_path` is the file named last."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        self._path = ""
        self._edits: list[Edit] = []

    def read(self) -> list[Edit]:
        fence: _Fence | None = None
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if start := _BLOCK_START.fullmatch(line):
                self._read_block(_Kind[start[1]])
                continue
            if fence is not None and fence.closed_by(line):
                fence = None
            elif fence is None and (opened := _FENCE.fullmatch(line)):
                fence = self._open_fence(_Fence(opened[1], opened[2].strip()))
                continue
            elif path := _path_line(line):
                self._path = path
            self._at += 1
        return self._edits

    def _open_fence(self, fence: _Fence) -> _Fence | None:
        """Take the fence's content whole, or step into it where it holds marked blocks."""
        named = _info_path(fence.info) or _heading_path(self._lines, self._at)
        self._path = named or self._path
        content, after, closed = self._fenced(fence)
        if any(_BLOCK_START.fullmatch(line) for line in content):
            self._at += 1
            return fence
        self._at = after
        if named:
            if not closed:
                raise InvalidEdit("the file's text breaks off before its fence ends", named)
            self._edits.append(Whole(named, tuple(content)))
        else:
            self._edits.extend(
                Define(name, source) for name, source in definitions_in("\n".join(content))
            )
        return None

    def _fenced(self, fence: _Fence) -> tuple[list[str], int, bool]:
        """The fence's content, the line after it, and whether it was closed."""
        for end in range(self._at + 1, len(self._lines)):
            if fence.closed_by(self._lines[end]):
                return self._lines[self._at + 1 : end], end + 1, True
        return self._lines[self._at + 1 :], len(self._lines), False

    def _read_block(self, kind: _Kind) -> None:
        if self._at and (named := _path_word(self._lines[self._at - 1])):
            self._path = named
        path = self._path
        if not path:
            raise InvalidEdit(f"a {kind.name} block names no file; put the path on the line before")
        body = self._body(kind)
        match kind:
            case _Kind.DELETE:
                if any(line.strip() for line in body):
                    raise InvalidEdit("a DELETE block must be empty", path)
                self._edits.append(Remove(path))
            case _Kind.RENAME:
                targets = [line.strip().strip("`") for line in body if line.strip()]
                if len(targets) != 1:
                    raise InvalidEdit("a RENAME block must hold one line, the new path", path)
                self._edits.append(Rename(path, targets[0]))
            case _Kind.SEARCH:
                self._edits.append(_replace(path, body))

    def _body(self, kind: _Kind) -> list[str]:
        first = self._at + 1
        for end in range(first, len(self._lines)):
            line = self._lines[end]
            if (ended := _BLOCK_END.fullmatch(line)) and ended[1] == kind.value:
                self._at = end + 1
                return self._lines[first:end]
            if ended or _BLOCK_START.fullmatch(line):
                break
        raise InvalidEdit(f"a {kind.name} block has no '>>>>>>> {kind.value}' line", self._path)


def _replace(path: str, body: Sequence[str]) -> Edit:
    dividers = [index for index, line in enumerate(body) if _DIVIDER.fullmatch(line)]
    if len(dividers) != 1:
        problem = "no" if not dividers else "more than one"
        raise InvalidEdit(f"a SEARCH block has {problem} '=======' line", path)
    search, replacement = tuple(body[: dividers[0]]), tuple(body[dividers[0] + 1 :])
    if not any(line.strip() for line in search):
        return Create(path, replacement)
    return Replace(path, search, replacement)


def _heading_path(lines: Sequence[str], fence_at: int) -> str:
    """The path on the line right above a fence, with at most one blank line between."""
    for line in reversed(lines[max(0, fence_at - 2) : fence_at]):
        if line.strip():
            return _path_line(line)
    return ""


def _path_line(line: str) -> str:
    """The path that a line consists of, else empty.

    Takes it bare, in backticks, as a heading, in bold, after 'File:', with a colon at its end.
    It has a dot or a slash in it, so that a word of prose or a function's name is none.
    """
    rest = line.strip().lstrip("#").strip().strip("*").strip()
    rest = re.sub(r"(?i)^(?:file|path)(?:name)?\s*:\s*", "", rest).rstrip(":").strip().strip("*")
    if len(rest) > 2 and rest[0] == rest[-1] == "`" and "`" not in rest[1:-1]:
        rest = rest[1:-1].strip()
    elif not _BARE_PATH.fullmatch(rest) or rest.endswith((".", ",", ";", "!", "?", ")")):
        return ""
    return rest if re.search(r"[\w-][./\\]|[./\\][\w-]", rest) else ""


def _path_word(line: str) -> str:
    """The path right above a marker, where a single word (`Makefile`) can be nothing else."""
    word = line.strip()
    if len(word) > 2 and word[0] == word[-1] == "`" and "`" not in word[1:-1]:
        return word[1:-1].strip()
    return word if re.fullmatch(r"[A-Za-z][\w-]*", word) else ""


def _info_path(info: str) -> str:
    """The path in a fence's info string: `calc.py`, `python calc.py`, `python:calc.py`."""
    words = re.split(r"[\s:]+", info, maxsplit=1)
    if len(words) == 2 and _LANGUAGE.fullmatch(words[0]):
        named = re.sub(r"^(?:title|file|path|filename)=", "", words[1]).strip("\"'")
        return _path_line(named)
    return _path_line(info)
