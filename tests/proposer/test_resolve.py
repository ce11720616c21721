"""From edits to changes, against the files as they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.proposer.fakes import protects
from veriloop_tui.core.snapshot import Change, Delete, Write
from veriloop_tui.errors import InvalidEdit
from veriloop_tui.proposer.edit import (
    Create,
    Define,
    Edit,
    Remove,
    Rename,
    Replace,
    Whole,
    parse_edits,
)
from veriloop_tui.proposer.resolve import Ground, resolve

FILES = {
    "calc.py": b"def add(a, b):\r\n\treturn a - b\r\n",
    "run.sh": b"#!/bin/sh\necho hi\n",
    "empty.py": b"",
    "tests/test_calc.py": b"from calc import add\n",
}


def _read(path: str) -> bytes | None:
    if path == "link.py":
        raise InvalidEdit("is a symlink, not a file", path)
    return FILES.get(path)


def _mode(path: str) -> int | None:
    return {"run.sh": 0o755}.get(path, 0o644) if path in FILES else None


GROUND = Ground(_read, _mode, protects, frozenset({"run.sh"}), "calc.py", "add")


def _resolve(*edits: Edit) -> tuple[Change, ...]:
    return resolve(edits, GROUND)


def test_edits_of_one_file_build_on_each_other_and_make_one_change() -> None:
    first = Replace("calc.py", ("\treturn a - b",), ("\treturn a * b",))
    second = Replace("calc.py", ("\treturn a * b",), ("\treturn a + b",))
    assert _resolve(first, second) == (
        Write("calc.py", b"def add(a, b):\r\n\treturn a + b\r\n", None),
    )


def test_a_new_file_is_created_and_an_empty_one_filled() -> None:
    assert _resolve(Create("new/x.py", ("x = 1",)), Create("empty.py", ("y = 2",))) == (
        Write("empty.py", b"y = 2\n", None),
        Write("new/x.py", b"x = 1\n", None),
    )


def test_a_rename_keeps_bytes_and_mode_and_later_edits_see_it() -> None:
    edit = Replace("bin/run", ("echo hi",), ("echo ho",))
    assert _resolve(Rename("run.sh", "bin/run"), edit) == (
        Write("bin/run", b"#!/bin/sh\necho ho\n", 0o755),
        Delete("run.sh"),
    )


def test_a_file_is_deleted() -> None:
    assert _resolve(Remove("run.sh")) == (Delete("run.sh"),)


def test_a_whole_file_keeps_the_bytes_of_the_lines_it_repeats() -> None:
    ground = Ground(_read, _mode, protects, frozenset({"calc.py"}))
    changes = resolve([Whole("calc.py", ("def add(a, b):", "    return a + b"))], ground)
    assert changes == (Write("calc.py", b"def add(a, b):\r\n    return a + b\r\n", None),)


def test_a_definition_goes_into_the_file_the_prompt_named() -> None:
    assert _resolve(Define("add", "def add(a, b):\n    return a + b")) == (
        Write("calc.py", b"def add(a, b):\r\n\treturn a + b\r\n", None),
    )


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (Replace("gone.py", ("x",), ()), "no such file"),
        (Remove("gone.py"), "no such file"),
        (Create("calc.py", ("x",)), "but it exists"),
        (Rename("run.sh", "calc.py"), "calc.py exists"),
        (Whole("calc.py", ("x",)), "shown in full"),
        (Define("sub", "def sub(): pass"), "defines nothing called 'sub'"),
        (Replace("tests/test_calc.py", ("from calc import add",), ()), "is protected"),
        (Create("tests/conftest.py", ()), "is protected"),
        (Remove("tests/test_calc.py"), "is protected"),
        (Rename("tests/test_calc.py", "x.py"), "is protected"),
        (Rename("run.sh", "tests/run.sh"), "is protected"),
        (Create("../x.py", ()), "inside the workspace"),
        (Rename("run.sh", "/tmp/x"), "relative to the workspace"),
        (Replace("link.py", ("x",), ()), "symlink"),
        (Replace("run.sh", ("echo hi",), ("echo hi",)), "changes nothing"),
        (Whole("run.sh", ("#!/bin/sh", "echo hi")), "changes nothing"),
    ],
)
def test_what_does_not_apply_or_must_not_be_touched_is_invalid(edit: Edit, problem: str) -> None:
    with pytest.raises(InvalidEdit, match=problem):
        _resolve(edit)


def test_a_definition_without_a_named_file_is_invalid() -> None:
    ground = Ground(_read, _mode, protects)
    with pytest.raises(InvalidEdit, match="names no file"):
        resolve([Define("add", "def add(): pass")], ground)


def test_edits_that_undo_each_other_change_nothing() -> None:
    with pytest.raises(InvalidEdit, match="changes nothing"):
        _resolve(Rename("run.sh", "x.sh"), Rename("x.sh", "run.sh"))


_PARTS = st.sampled_from(
    [
        "calc.py",
        "`run.sh`",
        "tests/test_calc.py",
        "<<<<<<< SEARCH",
        "=======",
        ">>>>>>> REPLACE",
        "\treturn a - b",
        "echo hi",
        "<<<<<<< RENAME",
        ">>>>>>> RENAME",
        "```python",
        "```",
        "def add(a, b):",
        "    return a",
        "",
    ]
)


@given(st.lists(_PARTS | st.text(max_size=8)).map("\n".join))
def test_any_answer_ends_as_changes_of_unprotected_paths_or_as_invalid_edit(text: str) -> None:
    try:
        changes = resolve(parse_edits(text), GROUND)
    except InvalidEdit:
        return
    assert changes
    assert not any(protects(change.path) for change in changes)
