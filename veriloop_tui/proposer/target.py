"""Which function to ask for next: those that the failing tests run. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from veriloop_tui.core.obligation import CheckOutcome
from veriloop_tui.proposer.source import Definition, all_definitions
from veriloop_tui.proposer.workspace import (
    Workspace,
    failing_tests,
    frames,
    imported_files,
)

_MAX_TARGETS = 64


@dataclass(frozen=True, slots=True)
class Target:
    """A function or method to rewrite."""

    path: str
    definition: Definition

    def __str__(self) -> str:
        return f"{self.path}::{self.definition.qualname}"


def find_targets(workspace: Workspace, failing: tuple[CheckOutcome, ...]) -> tuple[Target, ...]:
    """The unprotected functions behind the failing checks, the nearest first.

    A test leads to the functions it calls by a name that is defined once in what its file imports;
    a traceback to those it runs through; these, last, to what they call themselves.
    """
    found: dict[str, Target] = {}
    for outcome in failing:
        for target in (*_called_by_test(workspace, outcome), *_in_frames(workspace, outcome)):
            found.setdefault(str(target), target)
    for target in tuple(found.values()):
        around = (target.path, *imported_files(workspace, (target.path,)))
        for called in _called(workspace, target.definition.node, around):
            found.setdefault(str(called), called)
    return tuple(found.values())[:_MAX_TARGETS]


def _called_by_test(workspace: Workspace, outcome: CheckOutcome) -> Iterator[Target]:
    for test in failing_tests(workspace, (outcome,)):
        module = workspace.module(test.path)
        if module is None:
            continue
        around = imported_files(workspace, (test.path,))
        for definition in all_definitions(module):
            if definition.name == test.name:
                yield from _called(workspace, definition.node, around)


def _in_frames(workspace: Workspace, outcome: CheckOutcome) -> Iterator[Target]:
    for frame in frames(workspace, outcome.excerpt):
        if workspace.protects(frame.path):
            continue
        around = [
            target
            for target in _functions(workspace, frame.path)
            if target.definition.start < frame.line <= target.definition.stop
        ]
        yield from around[-1:]


def _called(workspace: Workspace, node: ast.AST, paths: tuple[str, ...]) -> Iterator[Target]:
    """The functions of `paths` that `node` calls by a name that is defined once there."""
    names = dict.fromkeys(_called_names(node))
    if not names:
        return
    by_name: dict[str, list[Target]] = {}
    for path in paths:
        for target in _functions(workspace, path):
            by_name.setdefault(target.definition.name, []).append(target)
            if target.definition.name == "__init__":
                owner = target.definition.qualname.split(".")[-2]
                by_name.setdefault(owner, []).append(target)
    for name in names:
        if len(defined := by_name.get(name, [])) == 1:
            yield defined[0]


def _functions(workspace: Workspace, path: str) -> Iterator[Target]:
    module = workspace.module(path)
    for definition in all_definitions(module) if module else ():
        if not isinstance(definition.node, ast.ClassDef):
            yield Target(path, definition)


def _called_names(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        match inner:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                yield name
            case ast.Attribute(attr=name):
                yield name
