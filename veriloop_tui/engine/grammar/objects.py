"""The grammar of a JSON object: its members in order, the optional ones there or not. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from veriloop_tui.engine.grammar import gbnf
from veriloop_tui.engine.grammar.rules import PLAIN_CHAR, Rules, refused

Inner = Callable[[Any, str], str]

_MAX_NAME: Final = 200
_COLON: Final = '":" " "?'


def object_body(schema: dict[str, Any], where: str, rules: Rules, inner: Inner) -> str:
    """The body of a rule for the object; empty if any object will do.

    `inner` gives the rule of a member's schema. Raises `EngineRefused` (400).
    """
    properties, required = schema.get("properties", {}), schema.get("required", [])
    more = schema.get("additionalProperties", not properties)
    if not isinstance(properties, dict):
        raise refused(where, "'properties' is not an object")
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise refused(where, "'required' is not a list of names")
    if not properties and not required and more is True:
        return ""
    properties = dict(properties)
    for name in required:
        if name not in properties and "additionalProperties" in schema and more is False:
            raise refused(where, f"'{name}' is required and not allowed")
        properties.setdefault(name, True if more is False else more)
    members = [
        (
            rules.add(f"{_key(name)} {_COLON} {inner(value, f'{where}/properties/{_part(name)}')}"),
            name in required,
        )
        for name, value in properties.items()
        # What can never be there is left out, unless it must be.
        if value is not False or name in required
    ]
    extra = ""
    if more is not False:
        if any(len(name) > _MAX_NAME for name in properties):
            raise refused(where, "names are too long to be held beside 'additionalProperties'")
        value = inner(more, f"{where}/additionalProperties")
        extra = rules.add(f"{_other_key(properties, rules)} {_COLON} {value}")
    return f'"{{" blank {_members(members, extra, rules)} "}}"'


def _members(members: list[tuple[str, bool]], extra: str, rules: Rules) -> str:
    """One rule per member and what comes before it: nothing, or something and so a comma."""
    first = rules.add(f'({extra} ("," blank {extra})* blank)?' if extra else '""')
    later = rules.add(f'("," blank {extra})* blank' if extra else "blank")
    for member, required in reversed(members):
        first = rules.add(f"{member} {later}" + ("" if required else f" | {first}"))
        later = rules.add(f'"," blank {member} {later}' + ("" if required else f" | {later}"))
    return first


def _key(name: str) -> str:
    return gbnf.literal(json.dumps(name, ensure_ascii=False))


def _part(name: str) -> str:
    """A name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _other_key(names: Iterable[str], rules: Rules) -> str:
    """A key of plain characters that is none of the names."""
    plain = rules.add(f"[^{PLAIN_CHAR}]")
    return rf'"\"" {_none_of({*names}, plain, rules)} "\""'


def _none_of(names: set[str], plain: str, rules: Rules) -> str:
    """The rule for texts that are none of the names."""
    letters = sorted({name[0] for name in names if name})
    parts = ['""'] if "" not in names else []
    if not letters:
        return rules.add(" | ".join([*parts, f"{plain} {plain}*"]))
    listed = "".join(gbnf.char_class([(ord(one), ord(one))])[1:-1] for one in letters)
    parts.append(f"[^{PLAIN_CHAR}{listed}] {plain}*")
    for one in letters:
        if one.isprintable() and one not in '"\\':
            rest = _none_of({name[1:] for name in names if name.startswith(one)}, plain, rules)
            parts.append(f"{gbnf.literal(one)} {rest}")
    return rules.add(" | ".join(parts))
