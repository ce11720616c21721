"""Grammars of JSON schemas, run by llama.cpp itself on a vocabulary of single bytes."""

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.grammars import matches, written
from veriloop_tui.engine.decoding.llama import Vocabulary
from veriloop_tui.engine.grammar.schema import schema_grammar


def fits(vocabulary: Vocabulary, schema: Any, text: str) -> bool:
    """Whether the grammar of the schema allows exactly this text."""
    return matches(vocabulary, schema_grammar(json.dumps(schema)), text)


NAMES = st.sampled_from(("a", "ab", "b", "name", "kind", 'q"\\', "é", ""))
BOUNDS = st.integers(-130, 1200)


def pair(values: Any, low: str, high: str) -> Any:
    return st.tuples(values, values).map(
        lambda two: dict(zip((low, high), sorted(two), strict=True))
    )


LEAVES = st.one_of(
    st.sampled_from(
        (
            *({"type": kind} for kind in ("string", "integer", "number", "boolean", "null")),
            *({"type": "object"}, {"type": "array"}, {}, True),
            *({"type": "string", "format": form} for form in ("date", "date-time", "uuid", "time")),
            {"type": ["string", "null"], "maxLength": 2},
            {"type": "string", "pattern": "^[a-c]{1,3}(-x+|y?)$"},
            {"pattern": "n[^a-z]\\d|\\.$"},
            {"$ref": "#/$defs/tree"},
        )
    ),
    pair(st.integers(0, 5), "minLength", "maxLength"),
    pair(BOUNDS, "minimum", "maximum").map(lambda one: {"type": "integer", **one}),
    pair(BOUNDS, "minimum", "maximum").map(lambda one: {"type": "number", **one}),
    BOUNDS.map(lambda one: {"type": "number", "exclusiveMinimum": one}),
    BOUNDS.map(lambda one: {"type": "integer", "exclusiveMaximum": one}),
    st.lists(
        st.none() | st.booleans() | st.integers() | st.text(max_size=4), min_size=1, max_size=4
    ).map(lambda values: {"enum": values}),
    st.text(max_size=4).map(lambda value: {"const": {"k": value}}),
)


def inner(schemas: Any) -> Any:
    members = st.dictionaries(NAMES, schemas, max_size=4)
    return st.one_of(
        st.tuples(members, st.sets(NAMES, max_size=3), st.booleans()).map(
            lambda one: {
                "type": "object",
                "properties": one[0],
                "required": sorted(one[1] & one[0].keys()),
                "additionalProperties": one[2],
            }
        ),
        st.tuples(members, schemas).map(
            lambda one: {"properties": one[0], "additionalProperties": one[1]}
        ),
        st.tuples(schemas, pair(st.integers(0, 3), "minItems", "maxItems")).map(
            lambda one: {"type": "array", "items": one[0], **one[1]}
        ),
        st.lists(schemas, min_size=1, max_size=3).map(lambda one: {"prefixItems": one}),
        st.lists(schemas, min_size=1, max_size=3).map(lambda one: {"anyOf": one}),
        schemas.map(lambda one: {"allOf": [one], "description": "x"}),
    )


TREE = {
    "type": "object",
    "properties": {"kind": {"const": "tree"}, "sub": {"items": {"$ref": "#/$defs/tree"}}},
    "required": ["kind"],
}
SCHEMAS = st.recursive(LEAVES, inner, max_leaves=6).map(
    lambda one: {"allOf": [one], "$defs": {"tree": TREE}}
)


@given(SCHEMAS, st.integers(0, 1 << 30))
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_every_text_of_a_grammar_is_json_that_fits_the_schema(
    vocabulary: Vocabulary, schema: Any, seed: int
) -> None:
    text = written(vocabulary, schema_grammar(json.dumps(schema)), seed)

    jsonschema.validate(
        json.loads(text), schema, jsonschema.Draft202012Validator, format_checker=None
    )


@given(BOUNDS, BOUNDS, st.integers(-2000, 2000), st.sampled_from(("integer", "number")))
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_an_integer_is_allowed_exactly_if_it_is_between_the_bounds(
    vocabulary: Vocabulary, low: int, high: int, value: int, kind: str
) -> None:
    low, high = min(low, high), max(low, high)
    schema = {"type": kind, "minimum": low, "maximum": high}

    assert fits(vocabulary, schema, str(value)) == (low <= value <= high)


@pytest.mark.parametrize(
    ("schema", "yes", "no"),
    [
        ({"type": "number", "minimum": 0, "maximum": 1}, "0 0.5 1 1.00 0.0", "-0.5 1.01 2 00 .5"),
        ({"type": "number", "minimum": -2, "exclusiveMaximum": 0}, "-2 -2.0 -0.5", "0 -2.1 1"),
        ({"type": "number", "exclusiveMinimum": 3, "maximum": 4}, "3.001 4 3.5", "3 3.0 3.00 4.1"),
        ({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5}, "4", "3 5"),
        ({"type": "integer", "minimum": 10**17}, "100000000000000000", "99999999999999999"),
        ({"type": "number", "multipleOf": 1}, "3 -7", "3.5"),
        ({"type": "number"}, "-1.5e+10 0 12", "01 +1 1."),
        ({"type": ["integer", "null"], "minimum": 3}, "3 null", "2"),
        ({"enum": ["a", 1, None, [1]]}, '"a" 1 null [1]', '"b" 2'),
        ({"type": "string", "enum": ["a", 1]}, '"a"', "1"),
        ({"enum": [1, True, "b"], "const": True}, "true", "1"),
        ({"const": 'x"\\'}, '"x\\"\\\\"', '"x"'),
        ({"type": "string", "maxLength": 1200, "minLength": 2}, f'"{"a" * 1200}" "ab"', '"a"'),
        ({"type": "string", "maxLength": 2001}, f'"" "{"é" * 2001}"', f'"{"a" * 2002}"'),
        ({"type": "string", "maxLength": 1}, '"\\u00e9" "\\n" "é"', '"ab" "\\ud83d" "\t"'),
        ({"type": "array", "items": {"const": 1}, "minItems": 2}, "[1,1] [1,1,1]", "[] [1] [1,]"),
        ({"type": "array", "items": {"const": 1}, "maxItems": 1}, "[] [1]", "[1,1]"),
        ({"type": "array", "items": {"const": 1}, "maxItems": 0}, "[]", "[1]"),
        ({"items": [{"const": 1}], "minItems": 3}, '[1,"a",{}]', "[1] [1,2]"),
        ({"prefixItems": [{"const": 1}, {}], "items": False}, "[1,[]]", "[1,2,3]"),
        ({"pattern": "^[a-c]{2}-\\d+$"}, '"ab-1" "cc-007"', '"ab" "ad-1" "ab-1x"'),
        ({"pattern": "b"}, '"b" "abc"', '"ac" ""'),
        ({"pattern": '^["\\\\\\n]$'}, '"\\"" "\\\\" "\\n"', '"a" "\\t" "\\" """'),
        ({"pattern": "^(?:a|b(c|d){0,2})+?$"}, '"a" "bcd" "abab"', '"c" "" "bcdc"'),
        ({"pattern": "^[^a-z\\s]\\x41\\u00e9.$"}, '"1Aéz" "\\"Aé\\\\"', '"aAéz" "1Aé\\n"'),
        ({"pattern": "^a|b$"}, '"ax" "xb"', '"xa"'),
        ({"format": "date"}, '"2024-02-28" "1999-12-31"', '"2024-02-30" "2024-04-31" "24-1-1"'),
        ({"type": "string", "format": "uri"}, '"anything"', "1"),
        ({"anyOf": [{"const": 1}, {"const": 2}], "description": "x"}, "1 2", "3"),
        ({"oneOf": [{"minimum": 1}, {"maximum": -1}], "type": "integer"}, "1 -1", "0 x"),
        ({"allOf": [{"type": "integer", "minimum": 1}, {"maximum": 3}]}, "1 3", "0 4"),
        ({"allOf": [{"minimum": 1}, {"minimum": 3}, {"type": "integer"}]}, "3", "1 2"),
        ({"allOf": [{"type": "number"}, {"type": ["integer", "null"]}]}, "1", "1.5 null"),
        ({"allOf": [{"enum": [1, 2, 3]}, {"enum": [3, 2]}]}, "2 3", "1"),
        ({}, '{"a":[]} 1 null', "nul {a} [1,]"),
    ],
)
def test_texts_are_allowed_and_forbidden(
    vocabulary: Vocabulary, schema: dict[str, Any], yes: str, no: str
) -> None:
    assert [text for text in yes.split(" ") if not fits(vocabulary, schema, text)] == []
    assert [text for text in no.split(" ") if fits(vocabulary, schema, text)] == []


PERSON = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "a/b~": {"const": 1}, "last": {"const": 2}},
    "required": ["id", "last"],
}


@pytest.mark.parametrize(
    ("more", "yes", "no"),
    [
        (
            {},
            ('{"id":1,"last":2}', '{\n  "id": 1, "a/b~": 1,\n  "last": 2\n}'),
            ('{"last":2,"id":1}', '{"id":1}', '{"id":1,"last":2,"x":3}', '{"id":1,,"last":2}'),
        ),
        (
            {"additionalProperties": {"type": "null"}},
            ('{"id":1,"last":2,"x":null,"i":null,"idx":null,"":null}', '{"id":1,"last":2}'),
            ('{"id":1,"last":2,"x":3}', '{"id":1,"last":2,"id":null}'),
        ),
        ({"required": ["new"]}, ('{"id":1,"last":2,"new":[true]}',), ('{"id":1,"last":2}',)),
        (
            {"properties": {"id": {"maximum": 5}, "never": False}},
            ('{"id":1,"last":2}',),
            ('{"id":6,"last":2}', '{"id":1,"last":2,"never":1}'),
        ),
    ],
)
def test_members_come_in_order_and_others_only_where_the_schema_wants(
    vocabulary: Vocabulary, more: dict[str, Any], yes: tuple[str], no: tuple[str]
) -> None:
    schema = {"allOf": [PERSON, more]} if more else PERSON
    if "additionalProperties" in more:
        schema = {**PERSON, **more}

    assert [text for text in yes if not fits(vocabulary, schema, text)] == []
    assert [text for text in no if fits(vocabulary, schema, text)] == []


def test_schemas_may_refer_to_themselves(vocabulary: Vocabulary) -> None:
    schema = {
        "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["next"],
    }

    assert fits(vocabulary, schema, '{"next":{"next":null}}')
    assert not fits(vocabulary, schema, '{"next":{}}')


def test_names_of_rules_in_the_schema_do_not_matter(vocabulary: Vocabulary) -> None:
    schema = {
        "$defs": {"string": {"type": "integer"}, "root": {"const": "x"}, "a/b": {"const": 1}},
        "prefixItems": [
            *({"$ref": "#/$defs/string"}, {"type": "string"}, {"$ref": "#/$defs/root"}),
            {"$ref": "#/$defs/a~1b"},
        ],
    }

    assert fits(vocabulary, schema, '[5,"s","x",1]')
    assert not fits(vocabulary, schema, '["s","s","x",1]')
