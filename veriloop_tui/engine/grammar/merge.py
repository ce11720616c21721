"""Several JSON schemas that all hold, made into one. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from veriloop_tui.engine.grammar.rules import refused

# What says nothing about which documents fit.
NOTES: Final = frozenset(
    (
        *("$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "title", "description"),
        *("default", "examples", "example", "deprecated", "readOnly", "writeOnly"),
    )
)
_LEAST: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems")
_MOST: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems")


def merged(one: dict[str, Any], other: dict[str, Any], where: str) -> dict[str, Any]:
    """A schema that holds where both do. Raises `EngineRefused` (400) for what cannot be said."""
    for first, second in ((one, other), (other, one)):
        if first.get("additionalProperties", True) is not True and second.keys() & {
            "properties",
            "required",
        }:
            raise refused(where, "'additionalProperties' cannot be held beside other 'properties'")
    both = {**other, **one}
    for key in (one.keys() & other.keys()) - NOTES:
        if _text(one[key]) != _text(other[key]):
            both[key] = _merged_value(key, one[key], other[key], where)
    return both


def _merged_value(key: str, one: Any, other: Any, where: str) -> Any:
    if key in _LEAST and _numbers(one, other):
        return max(one, other)
    if key in _MOST and _numbers(one, other):
        return min(one, other)
    if key == "type":
        return [kind for kind in types(one) if kind in types(other)] + [
            "integer"
            for mine, theirs in ((one, other), (other, one))
            if "integer" in types(mine)
            and "number" in types(theirs)
            and "integer" not in types(theirs)
        ]
    if key == "required" and isinstance(one, list) and isinstance(other, list):
        return [*one, *(name for name in other if name not in one)]
    if key == "enum" and isinstance(one, list) and isinstance(other, list):
        return shared_values(one, other)
    if key == "properties" and isinstance(one, dict) and isinstance(other, dict):
        shared = {name: {"allOf": [one[name], other[name]]} for name in one if name in other}
        return {**one, **other, **shared}
    raise refused(where, f"'{key}' is said twice, differently")


def shared_values(one: list[Any], other: list[Any]) -> list[Any]:
    """The JSON values that are in both; `true` is not 1."""
    texts = {_text(value) for value in other}
    return [value for value in one if _text(value) in texts]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def types(value: Any) -> list[str]:
    """The types that a schema's `type` names."""
    return [value] if isinstance(value, str) else [one for one in value if isinstance(one, str)]


def _numbers(*values: Any) -> bool:
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)
