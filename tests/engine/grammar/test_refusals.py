import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veriloop_tui.engine.grammar.schema import schema_grammar
from veriloop_tui.errors import EngineRefused


def deep(schema: Any, times: int) -> Any:
    for _ in range(times):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "#: it is not a schema"),
        ("null", "#: it is not a schema"),
        ("false", "nothing fits"),
        ({"type": "array", "uniqueItems": True}, "'uniqueItems'"),
        ({"properties": {"a": {"not": {"const": 1}}}}, "#/properties/a: 'not'"),
        ({"type": "object", "minProperties": 1}, "'minProperties'"),
        ({"type": "number", "minimum": 0.5}, "'minimum' is supported for integers only"),
        ({"type": "number", "minimum": 1e300}, "'minimum'"),
        ({"type": "integer", "minimum": "1"}, "'minimum' is not a number"),
        ({"type": "integer", "multipleOf": 5}, "'multipleOf'"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "no number between"),
        ({"type": "strange"}, "no type 'strange'"),
        ({"type": 5}, "'type'"),
        ({"type": []}, "no type is left"),
        ({"enum": []}, "no value"),
        ({"enum": 5}, "'enum'"),
        ({"enum": ["a"], "minLength": 2}, "'minLength'"),
        ({"$ref": "https://example.org/x"}, "'$ref'"),
        ({"$ref": "#/$defs/none"}, "not there"),
        ({"$ref": "#"}, "refers to itself"),
        ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "refers to itself"),
        ({"allOf": [{"$ref": "#"}]}, "refers to itself"),
        (
            {
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
                "$ref": "#/$defs/a",
            },
            "refers to itself",
        ),
        ({"anyOf": []}, "'anyOf'"),
        ({"anyOf": [{}], "oneOf": [{}]}, "'anyOf'"),
        ({"properties": 5}, "'properties'"),
        ({"properties": {"a": 5}}, "#/properties/a: it is not a schema"),
        ({"required": "a"}, "'required'"),
        ({"required": ["a"], "additionalProperties": False}, "'a' is required and not allowed"),
        ({"properties": {"a" * 300: {}}, "additionalProperties": True}, "too long"),
        ({"minLength": 3, "maxLength": 2}, "'minLength'"),
        ({"type": "string", "maxLength": 10**9}, "'maxLength'"),
        ({"type": "string", "minLength": 3000}, "a minimum above 2000"),
        ({"type": "array", "minItems": -1}, "'minItems'"),
        ({"items": False, "minItems": 1}, "'minItems'"),
        ({"pattern": "a", "minLength": 1}, "'pattern'"),
        ({"pattern": "(?=a)"}, "look-around"),
        ({"pattern": "\\bx"}, "cannot be read"),
        ({"pattern": "(a|b"}, "cannot be read"),
        ({"pattern": "a)"}, "cannot be read"),
        ({"pattern": "[z-a]"}, "range"),
        ({"pattern": "["}, "cannot be read"),
        ({"pattern": "(a*)*"}, "may be empty"),
        ({"pattern": "a{3,2}"}, "below its minimum"),
        ({"pattern": "a{5000}"}, "more than 2000"),
        ({"pattern": "(" * 5000 + ")" * 5000}, "too deep"),
        ({"pattern": "\\"}, "cannot be read"),
        ({"pattern": "[a-z]{2000}" * 200}, "too large"),
        (deep({}, 100), "too deep"),
        (
            {
                "allOf": [
                    {"properties": {"a": {}}, "additionalProperties": False},
                    {"required": ["b"]},
                ]
            },
            "'additionalProperties'",
        ),
        ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, "'pattern' is said twice"),
        ({"properties": {f"p{n}": {"maxLength": 1999 - n} for n in range(300)}}, "too large"),
    ],
)
def test_a_schema_that_cannot_be_held_is_refused_by_name(schema: Any, named: str) -> None:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    with pytest.raises(EngineRefused) as caught:
        schema_grammar(text)

    assert caught.value.status == 400
    assert named in caught.value.message


def test_a_schema_that_grows_with_each_reference_is_refused_in_time() -> None:
    levels = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
        for n in range(40)
    }

    with pytest.raises(EngineRefused, match="too large"):
        schema_grammar(json.dumps({"$defs": {**levels, "d40": {}}, "$ref": "#/$defs/d0"}))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    (
                        *(
                            "type",
                            "properties",
                            "items",
                            "anyOf",
                            "allOf",
                            "enum",
                            "$ref",
                            "required",
                        ),
                        *(
                            "additionalProperties",
                            "minItems",
                            "maxLength",
                            "pattern",
                            "prefixItems",
                        ),
                        *("minimum", "const", "not", "format", "$defs", "a"),
                    )
                ),
                inner
                | st.sampled_from(("object", "array", "string", "integer", "#", "#/a", "[a", "(a")),
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
@settings(max_examples=300, deadline=None)
def test_any_json_makes_a_grammar_or_is_refused(schema: Any) -> None:
    with contextlib.suppress(EngineRefused):
        assert schema_grammar(json.dumps(schema)).startswith("root ::= ")
