"""The paths that a proposal must not touch."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from pathspec import GitIgnoreSpec

from veriloop_tui.core.obligation import Contract

_TESTS = (
    "tests/",
    "/test/",
    "__tests__/",
    "__snapshots__/",
    "test_*.py",
    "*_test.py",
    "tests.py",
    "*_test.go",
    "*.test.*",
    "*.spec.*",
    "conftest.py",
)
_RUNNERS = (
    "veriloop.toml",
    "veriloop-settings.toml",
    "pyproject.toml",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "tox.ini",
    "setup.cfg",
    "setup.py",
    "noxfile.py",
    ".coveragerc",
    "mypy.ini",
    ".mypy.ini",
    "ruff.toml",
    ".ruff.toml",
    ".flake8",
    ".pylintrc",
    "pyrightconfig.json",
    "Makefile",
    "GNUmakefile",
    "*.mk",
    "justfile",
    "package.json",
    "tsconfig*.json",
    "jest.config.*",
    "vitest.config.*",
)
_REPOSITORY = (
    ".git",
    ".gitignore",
    ".gitattributes",
    ".gitmodules",
    ".github/",
    ".gitlab-ci.yml",
    ".ci/",
    ".pre-commit-config.yaml",
)
_DEPENDENCIES = (
    "*.lock",
    "package-lock.json",
    "pnpm-lock.yaml",
    "go.sum",
    "requirements*.txt",
    "constraints*.txt",
    ".venv",
    "venv",
    ".tox",
    ".nox",
    "node_modules",
    "site-packages",
)
# What the interpreter loads by itself, or as a plug-in of the test runner.
_INTERPRETER = (
    "sitecustomize.py",
    "usercustomize.py",
    "sitecustomize/",
    "usercustomize/",
    "*.pth",
    "*.pyc",
    "*.egg-info",
    "*.dist-info",
    "__pycache__/",
)
_FRAMEWORK = (
    "pytest",
    "_pytest",
    "py",
    "pluggy",
    "iniconfig",
    "packaging",
    "pygments",
    "exceptiongroup",
    "tomli",
    "unittest",
    "doctest",
    "xml",
    "coverage",
    "hypothesis",
    "xdist",
    "nose",
)
_SHADOWS = (
    *(
        f"{place}/{name}{end}"
        for name in _FRAMEWORK
        for place in ("", "/src")
        for end in (".py", "/__init__.py")
    ),
    "/pytest/",
    "/_pytest/",
    "/src/pytest/",
    "/src/_pytest/",
    # Plug-ins are loaded by name, ours first, where the workspace is on the import path.
    "*pytest*.py",
    "/*pytest*/",
    "/src/*pytest*/",
)

DEFAULT_PROTECTED: tuple[str, ...] = (
    *_TESTS,
    *_RUNNERS,
    *_REPOSITORY,
    *_DEPENDENCIES,
    *_INTERPRETER,
    *_SHADOWS,
)


def protects(contract: Contract, path: str) -> bool:
    """Whether `path` ('/'-separated, relative to the workspace) must not be touched.

    Case and Unicode composition make no difference, since on some filesystems `Conftest.py` is
    `conftest.py`.
    """
    return matches(contract.protected, path)


def matches(patterns: tuple[str, ...], path: str) -> bool:
    """Whether one of the patterns covers `path`, read as `protects` reads a contract's."""
    return _spec(patterns).match_file(_folded(path))


@lru_cache(maxsize=8)
def _spec(patterns: tuple[str, ...]) -> GitIgnoreSpec:
    return GitIgnoreSpec.from_lines(_folded(pattern) for pattern in patterns)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
