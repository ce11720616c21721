"""The rules of a grammar in the making, and those of JSON that every grammar here begins with."""

from __future__ import annotations

from typing import Final

from veriloop_tui.engine.grammar import gbnf
from veriloop_tui.errors import EngineRefused

# An escape is never half of a surrogate pair, so that it is one character, and a whole one.
_ESCAPE: Final = (
    r'"\\" (["\\/bfnrt] | "u" ([0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2}))'
)
PLAIN_CHAR: Final = r'"\\\x00-\x1F\x7F'  # what a plain character of a string is not
_JSON: Final = {
    "blank": r'" "? | "\n" [ \t]{0,32}',
    "char": rf"[^{PLAIN_CHAR}] | {_ESCAPE}",
    "string": r'"\"" char* "\""',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,15})',
    "number": 'integer ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "object": r'"{" blank (member ("," blank member)* blank)? "}"',
    "member": r'string ":" " "? value',
    "array": '"[" blank (value ("," blank value)* blank)? "]"',
    "value": "object | array | string | number | boolean | null",
}
_BLOCK: Final = 1_000


class Rules:
    """Rules by name. What is said twice is one rule."""

    def __init__(self) -> None:
        self._bodies = dict(_JSON)
        self._names = {body: name for name, body in _JSON.items()}
        self._n = 0

    def add(self, body: str) -> str:
        """The name of a rule with this body."""
        if body not in self._names:
            self.define(self.reserve(), body)
        return self._names[body]

    def reserve(self) -> str:
        """A name for a rule that is defined later."""
        self._n += 1
        return f"r{self._n}"

    def define(self, name: str, body: str) -> None:
        """Give a reserved name its body."""
        self._bodies[name] = body
        self._names.setdefault(body, name)

    def repeat(self, item: str, least: int, most: int | None) -> str:
        """The body that is `item` so many times; the item is one symbol and never empty."""
        if least > gbnf.MAX_REPEAT:
            raise EngineRefused(400, f"a minimum above {gbnf.MAX_REPEAT} cannot be held")
        must = f"{item}{{{least}}}" if least else ""
        if most is None:
            return f"{must} {item}*".strip()
        return f"{must} {self._up_to(item, most - least)}".strip() if most > least else must

    def _up_to(self, item: str, most: int) -> str:
        """At most so many, in blocks, since llama.cpp takes a large maximum for no maximum."""
        body = f"{item}{{0,{most % _BLOCK}}}" if most % _BLOCK or most < _BLOCK else ""
        for _ in range(most // _BLOCK):
            rest = self.add(body) if body else ""
            body = f"{item}{{0,{_BLOCK - 1}}} | {item}{{{_BLOCK}}} {rest}"
        return f"({body})"

    def text(self, root: str) -> str:
        """The whole grammar, with `root` as the body of its first rule.

        Raises `EngineRefused` (400) if it is more than llama.cpp can be given.
        """
        grammar = "\n".join(
            f"{name} ::= {body}" for name, body in {"root": root, **self._bodies}.items()
        )
        gbnf.check(grammar)
        return grammar


def refused(where: str, problem: str) -> EngineRefused:
    """The refusal of a schema; `where` is a JSON pointer into it."""
    return EngineRefused(400, f"schema: {where}: {problem}")
