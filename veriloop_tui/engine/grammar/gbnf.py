"""Grammars in llama.cpp's GBNF: writing their parts, and refusing those that it cannot survive.

llama.cpp loops without end, or overflows its stack, on some grammars (a repetition whose maximum
is below its minimum, left recursion behind a rule that may be empty, thousands of brackets). So
each grammar that a client wrote is read here first. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Final

from veriloop_tui.errors import EngineRefused

MAX_TEXT: Final = 256 << 10
MAX_REPEAT: Final = 2_000  # llama.cpp takes a larger maximum for "without end"
_MAX_RULES: Final = 5_000
_MAX_DEPTH: Final = 100
_MAX_SYMBOLS: Final = 200_000
_MAX_WAYS: Final = 10_000

_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t\r\n]+|\#[^\r\n]*)
    |(?P<name>[A-Za-z0-9-]+)
    |(?P<define>::=)
    |(?P<literal>"(?:\\.|[^"\\])*")
    |(?P<one>\[(?:\\.|[^\]\\])*\]|!?<[^>]*>|\.)
    |(?P<repeat>[*+?]|\{[ \t]*[0-9]{1,9}[ \t]*(?:,[ \t]*(?:[0-9]{1,9}[ \t]*)?)?\})
    |(?P<open>\()|(?P<close>\))|(?P<or>\|)""",
    re.VERBOSE | re.DOTALL,
)
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_PLAIN: Final = re.compile(r"[ !#-\[\]-~]+")


def literal(text: str) -> str:
    """The part of a rule that is this text."""
    return '"' + "".join(one if _PLAIN.fullmatch(one) else _escaped(ord(one)) for one in text) + '"'


def char_class(ranges: Iterable[tuple[int, int]]) -> str:
    """The part of a rule that is one character of these ranges of code points, ends included."""
    parts = (
        _escaped(low) if low == high else f"{_escaped(low)}-{_escaped(high)}"
        for low, high in ranges
    )
    return "[" + "".join(parts) + "]"


def _escaped(code: int) -> str:
    if chr(code).isascii() and chr(code).isalnum():
        return chr(code)
    if code <= 0xFF:
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def check(grammar: str) -> None:
    """Refuse a grammar that would end or block the engine. Raises `EngineRefused` (400).

    Whether it is GBNF in every detail, llama.cpp decides itself. How long the matching of an
    ambiguous grammar takes is not bounded.
    """
    if len(grammar) > MAX_TEXT:
        raise _refused(f"it is longer than {MAX_TEXT >> 10} KiB")
    # llama.cpp writes a grammar that it cannot read to the terminal, as it is.
    if _CONTROL.search(grammar):
        raise _refused("it holds control characters; write them as \\x1B")
    rules = _read(grammar)
    if "root" not in rules:
        raise _refused("there is no rule named root")
    for rule in rules.values():
        for alternative in rule:
            for item in alternative:
                if item.rule and item.rule not in rules:
                    raise _refused(f"the rule {item.rule} is not defined")
    _check_left(rules, _nullable(rules))


@dataclass(frozen=True, slots=True)
class _Item:
    """A piece of a rule, `times` in a row: a reference to one, or `symbols` characters."""

    rule: str = ""
    symbols: int = 1
    optional: bool = False
    times: int = 1


_Rule = list[list[_Item]]


@dataclass(slots=True)
class _Reader:
    """The rules read so far, and the rules and brackets that are open, the innermost last."""

    rules: dict[str, _Rule] = field(default_factory=dict)
    open: list[_Rule] = field(default_factory=list)
    n_groups: int = 0
    n_symbols: int = 0

    def define(self, name: str) -> None:
        if len(self.open) > 1:
            raise _refused("a bracket is not closed")
        self.open = [self.rules.setdefault(name, [])]
        # A second definition takes the place of the first.
        self.open[0][:] = [[]]

    def add(self, item: _Item) -> None:
        self.n_symbols += item.symbols
        self.open[-1][-1].append(item)

    def begin_group(self) -> None:
        self.n_groups += 1
        name = f"({self.n_groups}"  # no rule of the grammar can be called that
        self.add(_Item(name))
        self.rules[name] = [[]]
        self.open.append(self.rules[name])

    def repeat(self, text: str) -> None:
        if not self.open[-1][-1]:
            raise _refused("there is nothing before a repetition")
        least, most = _times(text)
        last = self.open[-1][-1].pop()
        times = max(1, least + 1 if most is None else most)
        self.n_symbols += last.symbols * times
        optional = last.optional or least == 0
        self.open[-1][-1].append(
            _Item(last.rule, last.symbols * times, optional, last.times * times)
        )


def _times(text: str) -> tuple[int, int | None]:
    if text in ("*", "+", "?"):
        return int(text == "+"), 1 if text == "?" else None
    first, comma, second = (part.strip() for part in text.strip("{}").partition(","))
    least = int(first)
    most = (int(second) if second else None) if comma else least
    if max(least, most or 0) > MAX_REPEAT:
        raise _refused(f"it repeats something more than {MAX_REPEAT} times")
    if most is not None and most < least:
        raise _refused(f"in {text} the maximum is below the minimum")
    return least, most


def _read(grammar: str) -> dict[str, _Rule]:
    tokens = list(_tokens(grammar))
    reader = _Reader()
    for at, (kind, text) in enumerate(tokens):
        if kind == "name" and at + 1 < len(tokens) and tokens[at + 1][0] == "define":
            reader.define(text)
            continue
        if kind == "define":
            if at == 0 or tokens[at - 1][0] != "name":
                raise _refused("there is no name before a ::=")
            continue
        if not reader.open:
            raise _refused("it does not begin with a rule")
        match kind:
            case "name":
                reader.add(_Item(text))
            case "literal":
                reader.add(_Item(symbols=len(text) - 2, optional=text == '""'))
            case "one":
                reader.add(_Item(optional=text in ("[]", "[^]")))
            case "repeat":
                reader.repeat(text)
            case "open":
                reader.begin_group()
            case "close":
                reader.open.pop()
            case _:
                reader.open[-1].append([])
        if not 1 <= len(reader.open) <= _MAX_DEPTH:
            raise _refused("its brackets do not match, or go too deep")
        if reader.n_symbols > _MAX_SYMBOLS or len(reader.rules) > _MAX_RULES:
            raise _refused("it is too large once its repetitions are written out")
    if len(reader.open) > 1:
        raise _refused("a bracket is not closed")
    return reader.rules


def _tokens(grammar: str) -> Iterable[tuple[str, str]]:
    at = 0
    while at < len(grammar):
        found = _TOKEN.match(grammar, at)
        if found is None:
            raise _refused(f"it cannot be read from {grammar[at : at + 30]!r} on")
        at = found.end()
        if found.lastgroup != "blank":
            yield str(found.lastgroup), found[0]


def _nullable(rules: Mapping[str, _Rule]) -> set[str]:
    """The rules that may be empty."""
    users: dict[str, set[str]] = {name: set() for name in rules}
    for name, rule in rules.items():
        for item in (item for alternative in rule for item in alternative):
            if item.rule in users:
                users[item.rule].add(name)
    found: set[str] = set()
    todo = list(rules)
    while todo:
        name = todo.pop()
        if name not in found and any(
            all(item.optional or item.rule in found for item in alternative)
            for alternative in rules[name]
        ):
            found.add(name)
            todo += users[name]
    return found


def _check_left(rules: Mapping[str, _Rule], nullable: set[str]) -> None:
    """Refuse rules that come back to themselves before any character was read.

    Also those whose beginnings are too many: llama.cpp walks every one of them.
    """
    first: dict[str, list[_Item]] = {name: [] for name in rules}
    for name, rule in rules.items():
        for alternative in rule:
            for item in alternative:
                first[name].append(item)
                if not (item.optional or item.rule in nullable):
                    break
    graph = {name: [item.rule for item in items if item.rule] for name, items in first.items()}
    try:
        inner_first = list(TopologicalSorter(graph).static_order())
    except CycleError as cycle:
        named = [name for name in cycle.args[1] if not name.startswith("(")]
        raise _refused(f"the rule {named[0]} begins with itself") from None
    ways: dict[str, int] = {}
    for name in inner_first:
        ways[name] = 1 + sum(item.times * ways.get(item.rule, 1) for item in first[name])
        if ways[name] > _MAX_WAYS:
            raise _refused("it can begin in too many ways")


def _refused(problem: str) -> EngineRefused:
    return EngineRefused(400, f"grammar: {problem}")
