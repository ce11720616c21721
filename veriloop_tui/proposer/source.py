"""Python source as the proposer sees it: parsing hostile text, finding definitions. Pure."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from veriloop_tui.errors import InvalidEdit

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
DefinitionNode = FunctionNode | ast.ClassDef

_DEFINITION_START = re.compile(r"(?:async[ \t]+def|def|class)[ \t]+\w|@")
_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Definition:
    """A function or class in a file.

    `qualname` has its classes in front (`Basket.total`). `start` and `stop` are 0-based line
    numbers, `stop` exclusive; decorators belong to it. `body` is the line its first statement
    after the docstring may start on, equal to `stop` where there is none.
    """

    qualname: str
    node: DefinitionNode
    start: int
    body: int
    stop: int

    @property
    def name(self) -> str:
        """The last part of the qualified name."""
        return self.node.name


def parse_python(source: str | bytes) -> ast.Module | None:
    """The syntax tree, or `None` for what is not Python. Never warns, whatever the text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def split_lines(source: bytes) -> list[bytes]:
    """The lines as Python counts them, each with its end, so that they join to `source`."""
    lines, start = [], 0
    for end in _LINE_END.finditer(source):
        lines.append(source[start : end.end()])
        start = end.end()
    if start < len(source):
        lines.append(source[start:])
    return lines


def definitions(module: ast.Module) -> Iterator[Definition]:
    """The functions and classes at module level, in order."""
    yield from _definitions(module.body, "")


def all_definitions(module: ast.Module) -> Iterator[Definition]:
    """Those at module level, and the methods and classes inside classes."""
    for found in definitions(module):
        yield found
        yield from _members(found)


def _members(found: Definition) -> Iterator[Definition]:
    if isinstance(found.node, ast.ClassDef):
        for member in _definitions(found.node.body, f"{found.qualname}."):
            yield member
            yield from _members(member)


def _definitions(body: list[ast.stmt], prefix: str) -> Iterator[Definition]:
    for node in body:
        if not isinstance(node, DefinitionNode):
            continue
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        stop = node.end_lineno or node.lineno
        yield Definition(f"{prefix}{node.name}", node, first - 1, _body_line(node), stop)


def has_own_head(found: Definition, lines: Sequence[bytes]) -> bool:
    """Whether signature and docstring share no line with a statement of the body."""
    first = found.node.body[0]
    if lines[first.lineno - 1][: first.col_offset].strip():
        return False
    is_docstring = found.body >= first.lineno
    return not is_docstring or all(rest.lineno > found.body for rest in found.node.body[1:])


def head_of(found: Definition, lines: Sequence[bytes]) -> str:
    """Decorators, signature and docstring as they stand, without the line end."""
    if has_own_head(found, lines):
        head = b"".join(lines[found.start : found.body])
    else:
        first = found.node.body[0]
        at = first.lineno - 1
        head = b"".join(lines[found.start : at]) + lines[at][: first.col_offset]
    return head.decode("utf-8", "replace").rstrip()


def _body_line(node: DefinitionNode) -> int:
    """0-based line where the body after the docstring may start."""
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None:
        return first.end_lineno or first.lineno
    decorated = isinstance(first, DefinitionNode) and first.decorator_list
    return (decorated[0].lineno if decorated else first.lineno) - 1


def definitions_in(text: str) -> list[tuple[str, str]]:
    """Name and source of each whole function or class that a fenced block shows.

    Anything else at the top (imports, usage, prose after the code) is left out; a last line that
    breaks off is dropped. Raises `InvalidEdit` for a definition that is not Python.
    """
    text = textwrap.dedent(text)
    whole = _named(text)
    if whole is not None:
        return whole
    found: list[tuple[str, str]] = []
    for chunk in _chunks(text.split("\n")):
        named = _named("\n".join(chunk)) or _named("\n".join(chunk[:-1]))
        if not named:
            raise InvalidEdit(f"the code after '{chunk[0].strip()[:80]}' is not valid Python")
        found.extend(named)
    return found


def _named(text: str) -> list[tuple[str, str]] | None:
    module = parse_python(text)
    if module is None:
        return None
    lines = [line.decode() for line in split_lines(text.encode())]
    return [
        (found.name, "".join(lines[found.start : found.stop]).rstrip("\r\n"))
        for found in definitions(module)
    ]


def _chunks(lines: list[str]) -> Iterator[list[str]]:
    """Runs of lines that look like one definition: its head, then what is indented or blank."""
    chunk: list[str] = []
    headed = False
    for line in lines:
        starts = bool(_DEFINITION_START.match(line))
        inside = not line.strip() or line[0] in " \t)]}"
        if chunk and ((starts and headed) or not (starts or inside)):
            yield _trimmed(chunk)
            chunk, headed = [], False
        if starts or (chunk and inside):
            chunk.append(line)
            headed = headed or (starts and not line.startswith("@"))
    if chunk:
        yield _trimmed(chunk)


def _trimmed(chunk: list[str]) -> list[str]:
    while chunk and not chunk[-1].strip():
        chunk = chunk[:-1]
    return chunk
