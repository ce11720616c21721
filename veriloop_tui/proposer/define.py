"""Replacing one function or class in the bytes of a Python file. Pure."""

from __future__ import annotations

import ast
import textwrap

from veriloop_tui.errors import InvalidEdit
from veriloop_tui.proposer.source import (
    Definition,
    all_definitions,
    definitions,
    has_own_head,
    parse_python,
    split_lines,
)
from veriloop_tui.proposer.splice import merge_lines, splice_lines, usual_line_end


def replace_definition(content: bytes, path: str, name: str, source: str, wanted: str) -> bytes:
    """`content` with its definition of `name` made to read `source`, indented as it stands.

    `wanted` is the qualified name that the prompt asked for; it settles which of several is
    meant. Where `source` repeats the head (decorators, signature, docstring), the file's own bytes
    of the head are kept. Raises `InvalidEdit` where there is no such definition, or several.
    """
    module = parse_python(content)
    if module is None:
        raise InvalidEdit("the file is not valid Python, so no definition can be replaced", path)
    found = _unique(module, path, name, wanted)
    lines = split_lines(content)
    new = _written(found, lines, source, _indent_of(lines[found.start]))
    old = lines[found.start : found.stop]
    bare = [line.rstrip(b"\r\n") for line in old]
    merged = merge_lines(old, bare, new, usual_line_end(lines))
    return splice_lines(lines, found.start, found.stop, merged)


def _unique(module: ast.Module, path: str, name: str, wanted: str) -> Definition:
    every = list(all_definitions(module))
    exact = [found for found in every if found.qualname == wanted and found.name == name]
    matching = exact or [found for found in every if found.name == name]
    if not matching:
        raise InvalidEdit(f"the file defines nothing called '{name}'", path)
    if len(matching) > 1:
        raise InvalidEdit(f"the file defines '{name}' {len(matching)} times", path)
    return matching[0]


def _written(found: Definition, lines: list[bytes], source: str, indent: bytes) -> list[bytes]:
    """The new lines at the file's depth, with the file's decorators and head where repeated."""
    module = parse_python(source)
    given = list(definitions(module)) if module is not None else []
    if len(given) != 1:
        raise InvalidEdit(f"the code of '{found.name}' is not one whole definition")
    (new,) = given
    text = source.split("\n")
    own_heads = has_own_head(found, lines) and has_own_head(new, split_lines(source.encode()))
    if own_heads and _head(found.node) == _head(new.node):
        kept = [line.rstrip(b"\r\n") for line in lines[found.start : found.body]]
        first = lines[found.node.body[0].lineno - 1]
        body = textwrap.dedent("\n".join(text[new.body :])).split("\n")
        return kept + _indented(body, _indent_of(first))
    written = _indented(text, indent)
    if not new.node.decorator_list and found.node.decorator_list:
        decorators = lines[found.start : found.node.lineno - 1]
        return [line.rstrip(b"\r\n") for line in decorators] + written
    return written


def _indented(text: list[str], indent: bytes) -> list[bytes]:
    return [indent + line.encode() if line.strip() else b"" for line in text]


def _indent_of(line: bytes) -> bytes:
    return line[: len(line) - len(line.lstrip(b" \t"))]


def _head(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    """Kind, name, parameters and docstring: all that the prompt may have given away already."""
    parts: list[str] = [type(node).__name__, node.name, ast.get_docstring(node) or ""]
    if isinstance(node, ast.ClassDef):
        parts += [ast.dump(base) for base in (*node.bases, *node.keywords)]
    else:
        parts += [ast.dump(node.args), ast.dump(node.returns) if node.returns else ""]
    return "\n".join(parts)
