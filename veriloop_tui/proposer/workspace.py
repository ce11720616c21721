"""What the proposer reads of a workspace: which files matter for the task and what fails."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from veriloop_tui.core.obligation import CheckKind, CheckOutcome
from veriloop_tui.proposer.source import parse_python

# Bounded and anchored at a word's start, so that hostile output costs linear time.
_FRAME = re.compile(
    r"(?<![\w./-])([\w./-]{1,400}):(\d{1,7})\b|File \"([^\"\n]{1,400})\", line (\d{1,7})\b"
)
_WORD = re.compile(r"[\w./-]+")
_MAX_IMPORTED = 40
_MAX_SOURCE = 400_000


@dataclass(frozen=True)
class Workspace:
    """The regular files of one snapshot. `read` gives a file's bytes, `None` if there is none."""

    files: frozenset[str]
    read: Callable[[str], bytes | None]
    protects: Callable[[str], bool]

    @cached_property
    def by_name(self) -> dict[str, tuple[str, ...]]:
        """Paths by their last part, in order."""
        found: dict[str, list[str]] = {}
        for path in sorted(self.files):
            found.setdefault(path.rpartition("/")[2], []).append(path)
        return {name: tuple(paths) for name, paths in found.items()}

    def module(self, path: str) -> ast.Module | None:
        """The syntax tree of a Python file, `None` for anything else."""
        if path not in self._modules:
            content = self.read(path) if path.endswith(".py") else None
            short = content is not None and len(content) <= _MAX_SOURCE
            self._modules[path] = parse_python(content) if content is not None and short else None
        return self._modules[path]

    @cached_property
    def _modules(self) -> dict[str, ast.Module | None]:
        return {}


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of a workspace file that some failure text names; `line` is 1-based."""

    path: str
    line: int


@dataclass(frozen=True, slots=True)
class FailingTest:
    """A failing test that was found in the workspace; `name` is its function's."""

    path: str
    name: str


def frames(workspace: Workspace, text: str) -> Iterator[Frame]:
    """The workspace lines that failure text names, in order."""
    for match in _FRAME.finditer(text):
        named, line = (match[1], match[2]) if match[1] else (match[3], match[4])
        path = _locate(workspace, named)
        if path:
            yield Frame(path, int(line))


def _locate(workspace: Workspace, named: str) -> str:
    """The file that `named` ends with or that ends with `named`; empty where it is not one."""
    named = named.removeprefix("./")
    if named in workspace.files:
        return named
    same_name = workspace.by_name.get(named.rpartition("/")[2], ())
    fitting = [
        path for path in same_name if named.endswith(f"/{path}") or path.endswith(f"/{named}")
    ]
    return fitting[0] if len(fitting) == 1 else ""


def failing_tests(workspace: Workspace, failing: Iterable[CheckOutcome]) -> Iterator[FailingTest]:
    """The tests among the failing checks whose file is in the workspace."""
    for outcome in failing:
        if outcome.check.kind is not CheckKind.TEST:
            continue
        *places, name = outcome.check.name.split("[", 1)[0].split("::")
        for place in (outcome.group, *places):
            if path := _test_file(workspace, place):
                yield FailingTest(path, name)
                break


def _test_file(workspace: Workspace, place: str) -> str:
    """The file of `tests/test_a.py`, `tests.test_a` or `tests.test_a.TestClass`."""
    if place in workspace.files:
        return place
    parts = place.split(".")
    while parts and all(parts):
        if path := _locate(workspace, "/".join(parts) + ".py"):
            return path
        parts.pop()
    return ""


def imported_files(workspace: Workspace, start: Iterable[str]) -> tuple[str, ...]:
    """The unprotected workspace files that Python files import, nearest first."""
    queue = list(start)
    seen = set(queue)
    found: list[str] = []
    for path in queue:
        module = workspace.module(path)
        for name, level in _imports(module) if module else ():
            for target in _module_files(workspace, path, name, level):
                if target not in seen and len(seen) < _MAX_IMPORTED:
                    seen.add(target)
                    queue.append(target)
                    if not workspace.protects(target):
                        found.append(target)
    return tuple(found)


def _imports(module: ast.Module) -> Iterator[tuple[str, int]]:
    """Dotted names that may be modules, each with its level of relative import."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if base:
                yield base, node.level
            yield from ((f"{base}.{alias.name}".strip("."), node.level) for alias in node.names)


def _module_files(workspace: Workspace, importer: str, name: str, level: int) -> Iterator[str]:
    stem = name.replace(".", "/")
    if level:
        parents = PurePosixPath(importer).parents
        if level > len(parents):
            return
        stem = str(parents[level - 1] / stem)
    for tail in (f"{stem}.py", f"{stem}/__init__.py"):
        if level:
            if tail in workspace.files:
                yield tail
        elif path := _locate(workspace, tail):
            yield path


def relevant_files(
    workspace: Workspace, task: str, failing: tuple[CheckOutcome, ...]
) -> tuple[str, ...]:
    """The files a proposal should see, the most telling first.

    Those the task names, those in the failures' tracebacks, what the failing tests import, then
    the tests themselves; protected ones come last.
    """
    named = [path for word in _WORD.findall(task) if (path := _locate(workspace, word.strip("./")))]
    in_frames = [frame.path for outcome in failing for frame in frames(workspace, outcome.excerpt)]
    tests = [test.path for test in failing_tests(workspace, failing)]
    ordered = dict.fromkeys([*named, *in_frames, *imported_files(workspace, [*tests, *in_frames])])
    ordered.update(dict.fromkeys(tests))
    return tuple(sorted(ordered, key=workspace.protects))
