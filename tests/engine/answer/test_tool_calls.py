import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.core.chat import Tool
from veriloop_tui.engine.answer.tool_calls import CLOSING, CallEnd, CallMalformedError, parse_call

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "n": {"type": "integer"},
        "share": {"type": "number"},
        "on": {"type": "boolean"},
        "list": {"type": "array"},
        "map": {"$ref": "#/$defs/map"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "either": {"type": ["integer", "string"]},
        "mode": {"enum": ["r", "w"]},
        "level": {"enum": [1, 2]},
        "loop": {"$ref": "#/properties/loop"},
        "free": {},
    },
    "$defs": {"map": {"type": "object"}},
}
TOOLS = (Tool("write", "", json.dumps(SCHEMA)), Tool("list-files", "", "{}"))


def xml(**values: str) -> str:
    inner = "".join(f"<parameter={name}>\n{text}\n</parameter>\n" for name, text in values.items())
    return f"\n<function=write>\n{inner}</function>\n"


def arguments(body: str) -> Any:
    name, text = parse_call(body, TOOLS)
    assert name == "write"
    return json.loads(text)


def end_of(text: str) -> int | None:
    """The end, found while the text grows character by character."""
    finder = CallEnd()
    for n in range(len(text) + 1):
        if (end := finder.find(text[:n])) is not None:
            return end
    return None


def test_the_arguments_stay_as_the_model_wrote_them() -> None:
    body = '{"arguments": {"n": 1.50, "big": 1e999, "é": "\\u00e9"} , "name": "write"}'

    assert parse_call(body, TOOLS) == ("write", '{"n": 1.50, "big": 1e999, "é": "\\u00e9"}')


def test_arguments_may_be_json_in_a_string_or_missing() -> None:
    assert parse_call('{"name": "write", "arguments": "{\\"n\\": 1}"}', TOOLS)[1] == '{"n": 1}'
    assert parse_call('{"name": "list-files"}', TOOLS) == ("list-files", "{}")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("", "neither"),
        ("write(1)", "neither"),
        ('{"name": "write", "arguments": {"n": 1,}}', "not valid JSON"),
        ('{"name": "write", "arguments": {n: 1}}', "not valid JSON"),
        ('{"name": "write", "arguments": {"n": NaN}}', "NaN"),
        ('{"name": "write", "arguments": {"n": 1}} and more', "not valid JSON"),
        ('{"name": "write", "arguments": [1]}', "not an object"),
        ('{"name": "write", "arguments": "[1]"}', "not an object"),
        ('{"name": "write", "arguments": "x"}', "not valid JSON"),
        ('{"arguments": {}}', "no 'name'"),
        ('{"name": "remove", "arguments": {}}', "no tool named 'remove'"),
        ('{"name": ' + "[" * 100_000, "not valid JSON"),
        ("<function=write>", "not whole"),
        ("<function=></function>", "not whole"),
        ("<function=remove></function>", "no tool named 'remove'"),
        ("<function=write>text</function>", "text between"),
        ("<function=write><parameter=n>1</function>", "has no end"),
        (
            "<function=write><parameter=n>1</parameter><parameter=n>2</parameter></function>",
            "twice",
        ),
        (xml(n="many"), "'n' is not integer"),
        (xml(n="1.5"), "'n' is not integer"),
        (xml(list="{}"), "'list' is not array"),
        (xml(on="yes"), "'on' is not boolean"),
        (xml(level="3 apples"), "'level' is not integer or number"),
    ],
)
def test_a_malformed_call_is_refused_with_the_reason(body: str, problem: str) -> None:
    with pytest.raises(CallMalformedError, match=problem):
        parse_call(body, TOOLS)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("text", "5", "5"),
        ("text", "  two\nlines\n", "  two\nlines\n"),
        ("text", "", ""),
        ("text", "a </parameter> b <parameter=x> c", "a </parameter> b <parameter=x> c"),
        ("n", " 5 ", 5),
        ("n", "5.0", 5.0),
        ("share", "0.5", 0.5),
        ("on", "True", True),
        ("on", "false", False),
        ("list", '[1, "<x>"]', [1, "<x>"]),
        ("map", '{"a": {}}', {"a": {}}),
        ("maybe", "None", None),
        ("maybe", "nobody", "nobody"),
        ("either", "7", 7),
        ("either", "seven", "seven"),
        ("mode", "w", "w"),
        ("level", "2", 2),
        ("loop", "1", "1"),
        ("free", "1", "1"),
        ("unheard", "1", "1"),
    ],
)
def test_values_of_the_xml_form_get_the_types_of_the_schema(
    name: str, text: str, value: object
) -> None:
    assert arguments(xml(**{name: text})) == {name: value}


def test_several_parameters_and_none_are_read() -> None:
    assert arguments(xml(text="a", n="1", on="true")) == {"text": "a", "n": 1, "on": True}
    assert arguments(xml()) == {}


@given(st.dictionaries(st.text(), st.recursive(st.text() | st.integers(), st.lists)))
def test_any_json_arguments_survive_and_the_end_is_found(values: dict[str, Any]) -> None:
    body = "\n" + json.dumps({"name": "write", "arguments": values}) + "\n"

    assert arguments(body) == values
    assert end_of(f"{body}{CLOSING}{CLOSING} rest") == len(body)


@given(st.text())
def test_any_text_survives_as_a_value_of_the_xml_form(text: str) -> None:
    body = xml(text=text)

    assert arguments(body) == {"text": text}
    assert end_of(body + CLOSING) == len(body)


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "write", "arguments": {"text": "</tool_call> {{ \\" }"}}',
        xml(text="a </tool_call> b"),
        "\n garbage ",
        '{"name": "write"}} too much ',
    ],
)
def test_the_end_is_found_behind_markers_in_strings_and_values(body: str) -> None:
    assert end_of(f"{body}{CLOSING} and <tool_call> more") == len(body)


def test_no_end_is_found_in_a_string_that_never_closes() -> None:
    assert end_of('{"name": "wri' + CLOSING) is None


@given(st.text(alphabet='<>/={}",:\\ \n_aflnotucwriemp', max_size=60))
def test_any_text_is_a_call_or_malformed(text: str) -> None:
    for body in (text, f"<function=write>{text}</function>", '{"name": "write", ' + text):
        with contextlib.suppress(CallMalformedError):
            parse_call(body, TOOLS)
