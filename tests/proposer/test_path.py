"""Which paths an answer may name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.errors import InvalidEdit
from veriloop_tui.proposer.path import confined_path


def _protects(path: str) -> bool:
    return path.startswith("tests/")


@pytest.mark.parametrize(
    "named",
    [
        "",
        "  ",
        "/etc/passwd",
        "~/.bashrc",
        "../outside.py",
        "a/../../b.py",
        "a/..",
        "a\0b",
        "a\nb",
        "a\\b.py",
        "..\\b.py",
        "C:/x",
        ".git/hooks/pre-commit",
        "sub/.GIT/config",
        "folder/",
        ".",
        "x" * 300,
        "x/" * 600 + "y",
    ],
)
def test_a_path_that_could_escape_or_cannot_be_a_file_is_invalid(named: str) -> None:
    with pytest.raises(InvalidEdit):
        confined_path(named, _protects)


@pytest.mark.parametrize("named", ["tests/test_a.py", "./tests/test_a.py", "tests//./test_a.py"])
def test_a_protected_path_is_invalid_however_it_is_written(named: str) -> None:
    with pytest.raises(InvalidEdit, match="is protected"):
        confined_path(named, _protects)


def test_a_path_is_given_in_the_form_of_snapshots() -> None:
    assert confined_path("./src//a b/.gitignore", _protects) == "src/a b/.gitignore"


@given(st.text(alphabet="ab./\\~:\0\n", max_size=30))
def test_what_passes_stays_inside(named: str) -> None:
    try:
        path = confined_path(named, _protects)
    except InvalidEdit:
        return
    parts = path.split("/")
    assert all(parts)
    assert not {".", ".."} & set(parts)
