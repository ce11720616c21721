"""What a workspace can be held to: finds its tests and proposes a contract.

Nothing in the workspace is executed, since no contract is trusted yet.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from veriloop_tui.core.obligation import BudgetLimits

_VENVS = (".venv", "venv")
_INTERPRETERS = ("python3", "python")
_HAS_PYTEST = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pytest') is None)"
_ASK_TIMEOUT = 20.0
_MENTIONS_PYTEST = re.compile(r"""(?im)(?:^|["'])\s*pytest(?:-[\w-]+)?\s*(?:\[|[<>=~!;#"']|$)""")
_PRUNED = frozenset({"node_modules", "site-packages", "__pycache__", "build", "dist", "target"})
_MAX_FOLDERS = 2000
_MAX_CONFIG = 1_000_000
_PYTEST = (
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
    "--continue-on-collection-errors",
    # The workspace's own options may stop at the first failure; a rank needs every test.
    "--maxfail=0",
    "-o",
    "junit_family=xunit1",
    "--junitxml={report}",
)


@dataclass(frozen=True, slots=True)
class Detected:
    """A proposed obligation, what it was concluded from, and what the user should know."""

    name: str
    run: tuple[str, ...]
    found: tuple[str, ...]
    notices: tuple[str, ...] = ()


def detect(workspace: Path, search_path: str) -> Detected | None:
    """The pytest suite of a workspace, `None` where nothing speaks of one.

    `search_path` is a PATH to look for interpreters in; folders inside the workspace are left out.
    """
    found = (*_configuration(workspace), *_test_files(workspace))
    if not found:
        return None
    interpreter = _interpreter(workspace, search_path)
    if interpreter is not None:
        return Detected("tests", (interpreter, *_PYTEST), (*found, f"pytest for {interpreter}"))
    notice = (
        "No Python with pytest was found; install it (`python3 -m pip install pytest`) "
        "or correct the command in the contract."
    )
    return Detected("tests", (_INTERPRETERS[0], *_PYTEST), found, (notice,))


def render_contract(detected: Detected) -> str:
    """The text of a commented `veriloop.toml` with the proposed obligation."""
    budget = BudgetLimits()
    words = "".join(f"  {json.dumps(word, ensure_ascii=False)},\n" for word in detected.run)
    return f"""\
# The contract of this workspace. A change is kept only if no check below gets worse and at least
# one gets better. Run `veriloop verify` to see where the workspace stands.
version = 1

# What one run may spend; it ends when the first of these is used up.
[budget]
attempts = {budget.attempts}
wall_time = "{(budget.wall_time or 0) / 60:.0f}m"
# tokens = 200000
# verifier_time = "20m"
# store_bytes = {budget.store_bytes}

# Paths that no proposed change may touch, in .gitignore form. Tests, this file, the settings of
# test runners and the like are always protected.
[protect]
paths = []

# Each obligation is one command: a list of words, or one shell line in quotes. With the report
# "junit" every test is a check of its own; with "exit" the exit code is the only check.
[[obligation]]
name = {json.dumps(detected.name)}
run = [
{words}]
report = "junit"
timeout = "5m"
# How often the baseline is measured, to find flaky tests.
repeats = 2
# Whether improved checks are measured again before a change is kept.
confirm = true
"""


def _configuration(workspace: Path) -> Iterator[str]:
    for name in ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "conftest.py"):
        if (workspace / name).is_file():
            yield name
    for name, section in (("tox.ini", "pytest"), ("setup.cfg", "tool:pytest")):
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(_text(workspace / name))
        except configparser.Error:
            continue
        if parser.has_section(section):
            yield f"[{section}] in {name}"
    project = _text(workspace / "pyproject.toml")
    if _has_pytest_table(project):
        yield "pytest's settings in pyproject.toml"
    elif _MENTIONS_PYTEST.search(project):
        yield "pytest among the dependencies in pyproject.toml"
    for path in sorted(workspace.glob("*requirements*.txt")):
        if _MENTIONS_PYTEST.search(_text(path)):
            yield f"pytest in {path.name}"


def _has_pytest_table(project: str) -> bool:
    try:
        tools = tomllib.loads(project).get("tool", {})
    except (ValueError, RecursionError):
        return False
    return isinstance(tools, dict) and "pytest" in tools


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_CONFIG).decode("utf-8", "replace")
    except OSError:
        return ""


def _test_files(workspace: Path) -> Iterator[str]:
    """One line per folder with test files, at most three, from a bounded walk."""
    shown = 0
    for visited, (folder, folders, files) in enumerate(os.walk(workspace)):
        folders[:] = sorted(name for name in folders if not _is_pruned(Path(folder) / name))
        tests = [name for name in files if fnmatch(name, "test_*.py") or fnmatch(name, "*_test.py")]
        if tests:
            place = Path(folder).relative_to(workspace)
            yield f"{len(tests)} test files in {place}/"
            shown += 1
        if shown == 3 or visited == _MAX_FOLDERS:
            return


def _is_pruned(folder: Path) -> bool:
    hidden = folder.name.startswith(".")
    return hidden or folder.name in _PRUNED or (folder / "pyvenv.cfg").exists()


def _interpreter(workspace: Path, search_path: str) -> str | None:
    for venv in _VENVS:
        python = workspace / venv / "bin" / "python"
        packages = (workspace / venv).glob("lib/python3*/site-packages/pytest")
        if os.access(python, os.X_OK) and any(packages):
            return f"{venv}/bin/python"
    root = workspace.resolve()
    outside = [
        folder
        for folder in search_path.split(os.pathsep)
        if Path(folder).is_absolute() and not Path(folder).resolve().is_relative_to(root)
    ]
    for name in _INTERPRETERS:
        python_path = shutil.which(name, path=os.pathsep.join(outside)) if outside else None
        if python_path and _runs_pytest(python_path):
            return name
    return None


def _runs_pytest(python: str) -> bool:
    try:
        done = subprocess.run(
            [python, "-I", "-c", _HAS_PYTEST],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            timeout=_ASK_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
