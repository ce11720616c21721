"""The grammar of single JSON values that a schema bounds: strings and numbers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from veriloop_tui.engine.grammar.numbers import integers, numbers
from veriloop_tui.engine.grammar.pattern import string_matching
from veriloop_tui.engine.grammar.rules import Rules, refused

_MAX_LENGTH: Final = 100_000
_DAY: Final = (
    '(("0" [13578] | "10" | "12") "-" ("0" [1-9] | [12] [0-9] | "3" [01])'
    ' | ("0" [469] | "11") "-" ("0" [1-9] | [12] [0-9] | "30")'
    ' | "02-" ("0" [1-9] | "1" [0-9] | "2" [0-8]))'
)
_DATE: Final = f'[12] [0-9]{{3}} "-" {_DAY}'
_HOUR: Final = '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9]'
_TIME: Final = f'{_HOUR} ":" [0-5] [0-9] ("." [0-9]{{1,6}})? ("Z" | [-+] {_HOUR})'
_FORMATS: Final = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f'{_DATE} "T" {_TIME}',
    "uuid": '[0-9a-fA-F]{8} ("-" [0-9a-fA-F]{4}){3} "-" [0-9a-fA-F]{12}',
}


def string_rule(schema: dict[str, Any], where: str, rules: Rules) -> str:
    """The name of the rule for a string. Raises `EngineRefused` (400)."""
    least, most = count(schema, "minLength", where) or 0, count(schema, "maxLength", where)
    form = schema.get("format")
    own = _FORMATS.get(form) if isinstance(form, str) else None
    bounded = least > 0 or most is not None
    if "pattern" in schema:
        if bounded or own:
            raise refused(where, "'pattern' cannot be held beside a length or a format")
        if not isinstance(schema["pattern"], str):
            raise refused(where, "'pattern' is not a text")
        return rules.add(string_matching(schema["pattern"], rules, where))
    if own:
        if bounded:
            raise refused(where, f"the format '{form}' cannot be held beside a length")
        return rules.add(rf'"\"" {own} "\""')
    if not bounded:
        return "string"
    if most is not None and most < least:
        raise refused(where, "'minLength' is above 'maxLength'")
    return rules.add(rf'"\"" {rules.repeat("char", least, most)} "\""')


def number_rule(kind: str, schema: dict[str, Any], where: str, rules: Rules) -> str:
    """The name of the rule for an `integer` or a `number`. Raises `EngineRefused` (400)."""
    if schema.get("multipleOf", 1) != 1:
        raise refused(where, "'multipleOf' is not supported")
    if "multipleOf" in schema:
        kind = "integer"
    low, above = _bound(schema, "minimum", "exclusiveMinimum", where)
    high, below = _bound(schema, "maximum", "exclusiveMaximum", where)
    if low is None and high is None:
        return kind
    if kind == "integer":
        body = integers(
            low + 1 if low is not None and above else low,
            high - 1 if high is not None and below else high,
        )
    else:
        body = numbers(low, high, above_low=above, below_high=below)
    if not body:
        raise refused(where, "there is no number between its bounds")
    return rules.add(body)


def count(schema: Mapping[str, Any], word: str, where: str) -> int | None:
    """What a keyword such as `minItems` says, if it is there. Raises `EngineRefused` (400)."""
    value = schema.get(word)
    if value is None:
        return None
    if not isinstance(value, int | float) or value != int(value) or not 0 <= value <= _MAX_LENGTH:
        raise refused(where, f"'{word}' must be an integer from 0 to {_MAX_LENGTH:,}")
    return int(value)


def _bound(
    schema: Mapping[str, Any], word: str, exclusive: str, where: str
) -> tuple[int | None, bool]:
    """A bound and whether it is itself outside; the stricter one if there are two."""
    found: list[tuple[int, bool]] = []
    for name in (word, exclusive):
        if (value := schema.get(name)) is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise refused(where, f"'{name}' is not a number")
        if abs(value) > 10**18 or value != int(value):
            raise refused(where, f"'{name}' is supported for integers only")
        found.append((int(value), name == exclusive))
    if not found:
        return None, False
    sign = 1 if word == "minimum" else -1
    return max(found, key=lambda bound: (sign * bound[0], bound[1]))
