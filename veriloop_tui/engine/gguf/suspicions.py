"""What in a chat template is there to harm whoever renders it.

A template is code of a stranger. It is rendered in a sandbox whatever is found here; this is for
the person who decides whether to keep the file. Nothing of the template runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import jinja2
from jinja2 import nodes

from veriloop_tui.engine.answer.template import _Generation

_MOST_READ: Final = 1 << 20
_MOST_SHOWN: Final = 10
_LARGE: Final = 100_000
_DEEP_LOOPS: Final = 4
# What jinja2 offers to every template, and attacks on it begin with; chat templates need none.
_GADGETS: Final = frozenset(("lipsum", "cycler", "joiner", "self", "config", "request"))
# Characters that make a text look like another one.
_HIDDEN: Final = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def suspicions(template: str) -> tuple[str, ...]:
    """Sentences, without a full stop, about what a chat template has no honest need of."""
    if len(template) > _MOST_READ:
        return (f"it has {len(template):,} characters, too many to be looked through",)
    found: list[str] = []
    if _HIDDEN.search(template):
        found.append("it holds invisible characters, so it may read otherwise than it runs")
    try:
        environment = jinja2.Environment(
            extensions=["jinja2.ext.loopcontrols", _Generation], autoescape=True
        )
        tree = environment.parse(template)
        found += dict.fromkeys(_suspicions(tree, 0))
    except jinja2.TemplateError as problem:
        found.append(f"it does not compile: {_short(str(problem))}")
    except RecursionError:
        found.append("it is nested too deeply to be looked through")
    if len(found) > _MOST_SHOWN:
        found[_MOST_SHOWN:] = [f"and {len(found) - _MOST_SHOWN} more of the kind"]
    return tuple(found)


def _suspicions(node: nodes.Node, loops: int) -> Iterator[str]:
    line = f" (line {node.lineno})"
    match node:
        case nodes.Getattr(attr=str(name)) if name.startswith("_"):
            yield f"it reaches for Python's insides: '{_short(name)}'{line}"
        case nodes.Getitem(arg=arg) if _is_made_up(arg):
            yield f"it puts the name of what it reads together from pieces{line}"
        case nodes.Const(value=str(text)) if "__" in text:
            yield f"it spells a name of Python's insides: '{_short(text)}'{line}"
        case nodes.Filter(name="attr"):
            yield f"it reads attributes by way of the filter 'attr'{line}"
        case nodes.Import() | nodes.FromImport() | nodes.Include() | nodes.Extends():
            yield f"it wants to load other files{line}"
        case nodes.Name(name=str(name), ctx="load") if name in _GADGETS or name.startswith("__"):
            yield f"it uses '{_short(name)}', which attacks on templates begin with{line}"
        case nodes.Call(node=nodes.Name(name="range"), args=args) if any(map(_is_large, args)):
            yield f"it counts to a number that would keep the engine busy{line}"
        case nodes.Mul(left=left, right=right) if _is_large(left) or _is_large(right):
            yield f"it multiplies by a number that would use up the memory{line}"
        case nodes.Pow():
            yield f"it computes powers, which can use up the memory{line}"
        case nodes.For() if loops + 1 == _DEEP_LOOPS:
            yield f"it has {_DEEP_LOOPS} loops inside each other{line}"
        case _:
            pass
    inner = loops + isinstance(node, nodes.For)
    for child in node.iter_child_nodes():
        yield from _suspicions(child, inner)


def _is_made_up(node: nodes.Node) -> bool:
    """Whether a text is built from others where a plain one would do."""
    match node:
        case nodes.Concat() | nodes.Filter(node=nodes.Const(value=str())):
            return True
        case nodes.Add(left=left, right=right) | nodes.Mul(left=left, right=right):
            return _is_text(left) or _is_text(right)
        case _:
            return False


def _is_text(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Const) and isinstance(node.value, str)


def _is_large(node: nodes.Node) -> bool:
    match node:
        case nodes.Const(value=int(number)):
            return number > _LARGE
        case nodes.Mul(left=left, right=right) | nodes.Pow(left=left, right=right):
            return _is_number(left) and _is_number(right)
        case _:
            return False


def _is_number(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Const) and isinstance(node.value, int)


def _short(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:60])
