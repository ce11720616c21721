"""The demo's workspace as a user gets it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from veriloop_tui.demo import write_demo
from veriloop_tui.errors import UsageError


def test_the_demo_is_written_with_the_interpreter_it_is_given(tmp_path: Path) -> None:
    write_demo(tmp_path / "new" / "demo", '/a "b"/python')
    contract = tomllib.loads((tmp_path / "new/demo/veriloop.toml").read_text())
    assert contract["obligation"][0]["run"][:3] == ['/a "b"/python', "-m", "pytest"]
    assert contract["budget"] == {"attempts": 40}


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        write_demo(tmp_path, sys.executable)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_contract_command_of_the_demo_reports_failures_of_every_function(
    tmp_path: Path,
) -> None:
    folder, report = tmp_path / "demo", tmp_path / "report.xml"
    write_demo(folder, sys.executable)
    contract = tomllib.loads((folder / "veriloop.toml").read_text())
    command = [part.replace("{report}", str(report)) for part in contract["obligation"][0]["run"]]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    assert done.returncode == 1
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None]
    assert len(cases) == 13
    assert len(failed) == 10
    functions = ("adult", "average", "largest", "power", "sum_even", "longest_word")
    texts = [case.findtext("failure") or "" for case in failed]
    assert all(any(function in text for text in texts) for function in functions)
