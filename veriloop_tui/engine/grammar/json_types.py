"""The types of JSON schema that a value is of."""

from __future__ import annotations


def json_types(value: object) -> set[str]:
    """All names of types that `value`, as `json.loads` gives it, fits: 1.0 is an integer too."""
    match value:
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number", "integer"} if value.is_integer() else {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
        case dict():
            return {"object"}
        case _:
            return {"null"}
