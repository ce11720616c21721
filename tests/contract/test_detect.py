"""`veriloop init`: what is found, without running anything of the workspace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from veriloop_tui.contract.detect import detect, render_contract
from veriloop_tui.contract.report import read_report
from veriloop_tui.contract.schema import parse_contract
from veriloop_tui.core.obligation import Obligation


def script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def interpreters(root: Path, **exits: int) -> str:
    """A PATH whose interpreters say whether they have pytest by their exit codes."""
    for name, code in exits.items():
        script(root / name, f"exit {code}")
    return str(root)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    return root


def test_a_workspace_without_tests_is_not_detected(workspace: Path, tmp_path: Path) -> None:
    (workspace / "main.py").write_text("import pytest_like_thing\n")
    (workspace / "pyproject.toml").write_text('[project]\ndependencies = ["httpx"]\n')
    hidden = workspace / ".venv" / "lib" / "test_inner.py"
    hidden.parent.mkdir(parents=True)
    hidden.touch()
    assert detect(workspace, interpreters(tmp_path / "bin", python3=0)) is None


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("pytest.ini", "[pytest]\n", "pytest.ini"),
        ("conftest.py", "", "conftest.py"),
        ("tox.ini", "[pytest]\naddopts = -x\n", "[pytest] in tox.ini"),
        ("setup.cfg", "[tool:pytest]\n", "[tool:pytest] in setup.cfg"),
        ("pyproject.toml", "[tool.pytest.ini_options]\n", "pytest's settings in pyproject.toml"),
        (
            "pyproject.toml",
            '[dependency-groups]\ndev = ["pytest>=8", "ruff"]\n',
            "pytest among the dependencies in pyproject.toml",
        ),
        ("requirements-dev.txt", "ruff\npytest==9.0  # tests\n", "pytest in requirements-dev.txt"),
        ("tests/test_a.py", "", "1 test files in tests/"),
        ("src/pkg/a_test.py", "", "1 test files in src/pkg/"),
    ],
)
def test_each_sign_of_pytest_is_enough_and_is_named(
    workspace: Path, tmp_path: Path, name: str, text: str, found: str
) -> None:
    path = workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    detected = detect(workspace, interpreters(tmp_path / "bin", python3=0))
    assert detected is not None
    assert detected.found == (found, "pytest for python3")
    assert detected.run[:3] == ("python3", "-m", "pytest")
    assert detected.notices == ()


def test_broken_configuration_does_not_stop_the_search(workspace: Path, tmp_path: Path) -> None:
    (workspace / "tox.ini").write_bytes(b"no section\n\xff")
    (workspace / "pyproject.toml").write_text("[[[")
    (workspace / "pytest.ini").touch()
    assert detect(workspace, interpreters(tmp_path / "bin", python3=0)) is not None


def test_the_workspaces_own_environment_comes_first(workspace: Path, tmp_path: Path) -> None:
    (workspace / "pytest.ini").touch()
    ran = tmp_path / "ran"
    script(workspace / ".venv" / "bin" / "python", f"touch {ran}")
    path = interpreters(tmp_path / "bin", python3=1, python=0)
    detected = detect(workspace, path)
    assert detected is not None
    assert detected.run[0] == "python"
    (workspace / ".venv" / "lib" / "python3.11" / "site-packages" / "pytest").mkdir(parents=True)
    detected = detect(workspace, path)
    assert detected is not None
    assert detected.run[0] == ".venv/bin/python"
    assert not ran.exists()


def test_an_interpreter_inside_the_workspace_is_never_run(workspace: Path, tmp_path: Path) -> None:
    (workspace / "pytest.ini").touch()
    ran = tmp_path / "ran"
    script(workspace / "bin" / "python3", f"touch {ran}")
    detected = detect(workspace, os.pathsep.join((str(workspace / "bin"), "bin", ".", "")))
    assert detected is not None
    assert not ran.exists()
    assert "install it" in detected.notices[0]


def test_the_proposed_contract_is_read_back_as_proposed(workspace: Path, tmp_path: Path) -> None:
    (workspace / "pytest.ini").touch()
    detected = detect(workspace, interpreters(tmp_path / "bin", python3=0))
    assert detected is not None
    contract = parse_contract(render_contract(detected).encode())
    assert contract.obligations == (Obligation("tests", detected.run, "junit"),)


def test_the_proposed_command_makes_a_readable_report(workspace: Path, tmp_path: Path) -> None:
    (workspace / "pytest.ini").write_text("[pytest]\naddopts = -x\n")
    (workspace / "test_a.py").write_text("def test_a(): assert 0\ndef test_b(): assert 0\n")
    (workspace / "test_b.py").write_text("import nothing_of_that_name\n")
    detected = detect(workspace, str(Path(sys.executable).parent))
    assert detected is not None
    report = tmp_path / "report.xml"
    argv = [word.replace("{report}", str(report)) for word in detected.run]
    env = {**os.environ, "PATH": str(Path(sys.executable).parent)}
    done = subprocess.run(argv, cwd=workspace, env=env, capture_output=True, check=False)
    outcomes = read_report("junit", report.read_bytes(), done.returncode, "tests")
    assert {o.check.name for o in outcomes if o.value} == {
        "test_a.py::test_a",
        "test_a.py::test_b",
        "test_b.py",
        "exit",
    }
