"""The grammar of an answer that has to call a tool, in the form that a template asks for. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, assert_never

from veriloop_tui.core.chat import Tool
from veriloop_tui.engine.answer.template import CallForm
from veriloop_tui.engine.answer.tool_calls import CLOSING, OPENING, parameter_types
from veriloop_tui.engine.grammar.gbnf import char_class, literal
from veriloop_tui.engine.grammar.rules import Rules
from veriloop_tui.engine.grammar.schema import SchemaRules
from veriloop_tui.errors import EngineRefused

_PARAMETER_END: Final = "\n</parameter>\n"


def calls_grammar(tools: Sequence[Tool], form: CallForm, *, several: bool) -> str:
    """The grammar of a call of one of the tools, or of `several` calls in a row.

    Raises `EngineRefused` (400) for a tool whose schema cannot be held.
    """
    rules = Rules()
    calls = [rules.add(_call(tool, form, rules)) for tool in tools]
    call = rules.add(" | ".join(dict.fromkeys(calls)))
    return rules.text(f'{call} ("\\n" {call})*' if several else call)


def _call(tool: Tool, form: CallForm, rules: Rules) -> str:
    try:
        match form:
            case "json":
                body = _json_call(tool, rules)
            case "xml":
                body = _xml_call(tool, rules)
            case _:
                assert_never(form)
    except EngineRefused as refused:
        raise EngineRefused(400, f"the tool '{tool.name}': {refused.message}") from None
    return f"{literal(OPENING + chr(10))} {body} {literal(chr(10) + CLOSING)}"


def _json_call(tool: Tool, rules: Rules) -> str:
    schemas = SchemaRules(tool.parameters, rules)
    root = schemas.root
    if isinstance(root, dict) and not root.keys() & {"$ref", "anyOf", "oneOf", "allOf"}:
        root = {**root, "type": "object"}
    begin = f'{{"name": {json.dumps(tool.name, ensure_ascii=False)}, "arguments": '
    return f'{literal(begin)} {schemas.rule(root)} "}}"'


def _xml_call(tool: Tool, rules: Rules) -> str:
    """The parameters in the schema's order, those that are not required there or not."""
    schemas = SchemaRules(tool.parameters, rules)
    schema: dict[str, Any] = schemas.root if isinstance(schemas.root, dict) else {}
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        raise EngineRefused(400, "its 'properties' or 'required' are not what a schema has")
    body = ""
    for name, inner in properties.items():
        types = parameter_types(name, schema)
        if types and "string" not in types:
            value = f"{schemas.rule(inner, f'#/properties/{name}')} {literal(_PARAMETER_END)}"
        else:
            value = _text_until(_PARAMETER_END, rules)
        parameter = f"{literal(f'<parameter={name}>{chr(10)}')} {value}"
        body += f" {parameter}" if name in required else f" ({parameter})?"
    return f'{literal(f"<function={tool.name}>{chr(10)}")}{body} "</function>"'


def _text_until(end: str, rules: Rules) -> str:
    """The rule for any text up to and with the first `end`: a search automaton of it."""
    names = [rules.reserve() for _ in end]
    for state, name in enumerate(names):
        known = {char: _next_state(end, state, char) for char in dict.fromkeys(end)}
        ways = [
            f"{literal(char)} {names[after] if after < len(end) else ''}"
            for char, after in known.items()
            if after
        ]
        others = char_class((ord(char), ord(char)) for char, after in known.items() if after)
        rules.define(name, " | ".join([*ways, f"[^{others[1:]} {names[0]}"]))
    return names[0]


def _next_state(end: str, state: int, char: str) -> int:
    """How much of `end` the text ends with after `char`, if it ended with `state` of it before."""
    text = end[:state] + char
    return next(n for n in range(len(text), -1, -1) if end.startswith(text[len(text) - n :]))
