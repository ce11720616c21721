"""From edits to the changes of a candidate, against the files as they are. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from veriloop_tui.core.snapshot import Change, Delete, Write
from veriloop_tui.errors import InvalidEdit
from veriloop_tui.proposer.define import replace_definition
from veriloop_tui.proposer.edit import Create, Define, Edit, Remove, Rename, Replace, Whole
from veriloop_tui.proposer.path import confined_path
from veriloop_tui.proposer.splice import (
    file_lines,
    merge_lines,
    replace_lines,
    splice_lines,
    usual_line_end,
    without_bom,
)


@dataclass(frozen=True, slots=True)
class Ground:
    """What edits are resolved against.

    `read` gives a file's bytes, `None` where there is no file, and may raise `InvalidEdit` for a
    path that is no regular file; `mode` gives its permission bits. `shown_whole` are the paths
    that the prompt showed in full. `named` is the file that the prompt named for definitions,
    empty if none, and `qualname` the definition it asked for.
    """

    read: Callable[[str], bytes | None]
    mode: Callable[[str], int | None]
    protects: Callable[[str], bool]
    shown_whole: frozenset[str] = frozenset()
    named: str = ""
    qualname: str = ""


def resolve(edits: Sequence[Edit], ground: Ground) -> tuple[Change, ...]:
    """The changes that all edits make together, one per path, in order of path.

    Edits apply one after the other, so that a later one sees what an earlier one wrote. Raises
    `InvalidEdit` where one does not apply, touches what it must not, or nothing changes.
    """
    draft = _Draft(ground)
    for edit in edits:
        draft.apply(edit)
    changes = draft.changes()
    if not changes:
        raise InvalidEdit("the answer changes nothing")
    return changes


class _Draft:
    """The files that the edits have touched so far, over those of the ground."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._files: dict[str, bytes | None] = {}
        self._modes: dict[str, int | None] = {}

    def apply(self, edit: Edit) -> None:
        match edit:
            case Replace():
                path = self._confined(edit.path)
                content = self._existing(path)
                self._files[path] = replace_lines(content, path, edit.search, edit.replacement)
            case Create():
                path = self._confined(edit.path)
                if self._read(path):
                    raise InvalidEdit("an empty SEARCH part creates a file, but it exists", path)
                self._files[path] = _new_file(edit.lines)
            case Remove():
                path = self._confined(edit.path)
                self._existing(path)
                self._files[path] = None
            case Rename():
                self._rename(self._confined(edit.path), self._confined(edit.to))
            case Whole():
                self._rewrite(self._confined(edit.path), edit.lines)
            case Define():
                self._define(edit)
            case _:
                assert_never(edit)

    def changes(self) -> tuple[Change, ...]:
        """What differs from the ground."""
        changes: list[Change] = []
        for path, content in sorted(self._files.items()):
            before = self._ground.read(path)
            mode = self._modes.get(path)
            if content is None:
                if before is not None:
                    changes.append(Delete(path))
            elif content != before or (mode is not None and mode != self._ground.mode(path)):
                changes.append(Write(path, content, mode))
        return tuple(changes)

    def _confined(self, named: str) -> str:
        return confined_path(named, self._ground.protects)

    def _read(self, path: str) -> bytes | None:
        return self._files[path] if path in self._files else self._ground.read(path)

    def _existing(self, path: str) -> bytes:
        content = self._read(path)
        if content is None:
            raise InvalidEdit("there is no such file", path)
        return content

    def _rename(self, path: str, to: str) -> None:
        content = self._existing(path)
        if self._read(to) is not None:
            raise InvalidEdit(f"it cannot be renamed: {to} exists", path)
        mode = self._modes.pop(path, None)
        self._modes[to] = self._ground.mode(path) if mode is None else mode
        self._files[path], self._files[to] = None, content

    def _rewrite(self, path: str, lines: Sequence[str]) -> None:
        content = self._read(path)
        if content is None:
            self._files[path] = _new_file(lines)
            return
        if path not in self._ground.shown_whole:
            raise InvalidEdit(
                "a whole file may be given only for a file that was shown in full; "
                "use SEARCH/REPLACE blocks",
                path,
            )
        bom, text = without_bom(content)
        old = file_lines(text)
        bare = [line.removesuffix(b"\n") for line in old]
        new = merge_lines(old, bare, [line.encode() for line in lines], usual_line_end(old))
        self._files[path] = bom + splice_lines(old, 0, len(old), new)

    def _define(self, edit: Define) -> None:
        if not self._ground.named:
            raise InvalidEdit(f"the code of '{edit.name}' names no file; put its path before it")
        path = self._confined(self._ground.named)
        content = self._existing(path)
        self._files[path] = replace_definition(
            content, path, edit.name, edit.source, self._ground.qualname
        )


def _new_file(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
