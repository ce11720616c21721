"""Answers that have to call a tool, as llama.cpp lets a model write them."""

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.grammars import matches, written
from veriloop_tui.core.chat import Tool
from veriloop_tui.engine.answer.template import CallForm
from veriloop_tui.engine.answer.tool_calls import CLOSING, OPENING, parse_call
from veriloop_tui.engine.answer.tool_grammar import calls_grammar
from veriloop_tui.engine.decoding.llama import Vocabulary

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 20},
        "on": {"type": "boolean"},
        "all": {"type": "array", "items": {"enum": ["a", "b"]}},
        "free": {},
    },
    "required": ["path", "on"],
}
WRITE = Tool("write", "", json.dumps(SCHEMA))
LIST = Tool("list", "", "{}")


@pytest.mark.parametrize("form", ["json", "xml"])
@given(seed=st.integers(0, 1 << 30))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_text_of_the_grammar_is_a_call_that_fits_the_tools_schema(
    vocabulary: Vocabulary, form: CallForm, seed: int
) -> None:
    grammar = calls_grammar((WRITE, LIST), form, several=False)
    text = written(vocabulary, grammar, seed, b"\n</parameter>\n" if form == "xml" else b"")

    assert text.startswith(OPENING)
    assert text.endswith(CLOSING)
    name, arguments = parse_call(text[len(OPENING) : -len(CLOSING)], (WRITE, LIST))
    jsonschema.validate(json.loads(arguments), SCHEMA if name == "write" else {"type": "object"})


JSON_CALL = '<tool_call>\n{"name": "list", "arguments": {}}\n</tool_call>'
XML_CALL = "<tool_call>\n<function=list>\n</function>\n</tool_call>"


@pytest.mark.parametrize(("form", "call"), [("json", JSON_CALL), ("xml", XML_CALL)])
def test_one_call_or_several_are_allowed(vocabulary: Vocabulary, form: CallForm, call: str) -> None:
    for several in (False, True):
        grammar = calls_grammar((LIST,), form, several=several)

        assert matches(vocabulary, grammar, call)
        assert matches(vocabulary, grammar, f"{call}\n{call}") == several
        assert not matches(vocabulary, grammar, "")
        assert not matches(vocabulary, grammar, f"Well: {call}")


@pytest.mark.parametrize(
    "value", ["", "a", "\n", "</parameter>", "\n</parameter", "\n\n</parameter> <x>", "a\n</\n</p"]
)
def test_a_text_of_the_xml_form_may_be_any_but_its_end(vocabulary: Vocabulary, value: str) -> None:
    grammar = calls_grammar((WRITE,), "xml", several=False)

    def call(text: str) -> str:
        path = f"<parameter=path>\n{text}\n</parameter>\n"
        on = "<parameter=on>\ntrue\n</parameter>\n"
        return f"<tool_call>\n<function=write>\n{path}{on}</function>\n</tool_call>"

    def arguments(text: str) -> Any:
        return json.loads(parse_call(call(text)[len(OPENING) : -len(CLOSING)], (WRITE,))[1])

    assert matches(vocabulary, grammar, call(value))
    assert arguments(value) == {"path": value, "on": True}
    assert not matches(vocabulary, grammar, call("a\n</parameter>\nb"))
