"""Calls of tools as models write them between `<tool_call>` and `</tool_call>`. Pure.

Two forms are read. Hermes: `{"name": "f", "arguments": {…}}`. Qwen's XML: `<function=f>`, then
`<parameter=x>` value `</parameter>` for each argument, then `</function>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from veriloop_tui.core.chat import Tool
from veriloop_tui.engine.grammar.json_types import json_types

OPENING: Final = "<tool_call>"
CLOSING: Final = "</tool_call>"
_FUNCTION: Final = "<function="
_FUNCTION_END: Final = "</function>"

_JSON_TOKEN: Final = re.compile(r'[\\"{}]')
_BLANK: Final = re.compile(r"\s*")
_FUNCTION_TAG: Final = re.compile(r"<function=([^<>\n]+)>")
_PARAMETER_TAG: Final = re.compile(r"\s*<parameter=([^<>\n]+)>")
# A value may hold the end tag itself: it ends where another parameter follows, or nothing does.
_PARAMETER_END: Final = re.compile(r"</parameter>\s*(?=<parameter=|\Z)")
_MAX_REFS: Final = 32
# Qwen's templates write booleans and nothing as Python does, and models copy that.
_WORDS: Final = {"true": "true", "false": "false", "null": "null", "none": "null"}


class CallMalformedError(Exception):
    """A text that is no call of one of the tools; `problem` says why."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)


class CallEnd:
    """Finds the end of a call in text that grows, past markers inside its strings and values."""

    def __init__(self) -> None:
        self._at = 0
        self._depth = 0
        self._in_string = False
        self._balanced = False

    def find(self, body: str) -> int | None:
        """Where the closing marker begins in `body`, the text after the opening one.

        `None` if that is not known yet. Each call must be given more of the same text.
        """
        start = _skip_blank(body, 0)
        head = body[start : start + len(_FUNCTION)]
        if len(head) < len(_FUNCTION) and _FUNCTION.startswith(head):
            return None
        if head == _FUNCTION:
            return self._find_xml(body)
        if head.startswith("{"):
            return self._find_json(body)
        return self._closing(body)

    def _find_xml(self, body: str) -> int | None:
        while (at := body.find(CLOSING, self._at)) >= 0:
            before = at
            while before and body[before - 1].isspace():
                before -= 1
            if body.endswith(_FUNCTION_END, 0, before):
                return at
            self._at = at + 1
        self._pass(body)
        return None

    def _find_json(self, body: str) -> int | None:
        while not self._balanced:
            token = _JSON_TOKEN.search(body, self._at)
            if token is None:
                self._at = max(self._at, len(body))
                return None
            self._take(token[0])
            self._at = token.end() + (token[0] == "\\")
        return self._closing(body)

    def _closing(self, body: str) -> int | None:
        if (at := body.find(CLOSING, self._at)) >= 0:
            return at
        self._pass(body)
        return None

    def _pass(self, body: str) -> None:
        """Do not look again at what holds no closing marker."""
        self._at = max(self._at, len(body) - len(CLOSING) + 1)

    def _take(self, char: str) -> None:
        if char == '"':
            self._in_string = not self._in_string
        elif not self._in_string and char != "\\":
            self._depth += 1 if char == "{" else -1
            self._balanced = self._depth == 0


def parse_call(body: str, tools: Sequence[Tool]) -> tuple[str, str]:
    """The name and the arguments, as JSON text, of the call that stands between the markers.

    Raises `CallMalformedError`.
    """
    text = body.strip()
    by_name = {tool.name: tool for tool in tools}
    if text.startswith(_FUNCTION):
        return _parse_xml(text, by_name)
    if text.startswith("{"):
        return _parse_json(text, by_name)
    raise CallMalformedError("it is neither a JSON object nor a <function=…> element")


def _parse_json(text: str, tools: Mapping[str, Tool]) -> tuple[str, str]:
    call = _json(text, "it")
    name = call.get("name")
    if not isinstance(name, str):
        raise CallMalformedError("it has no 'name'")
    _known(name, tools)
    arguments = call.get("arguments", {})
    if isinstance(arguments, dict):
        return name, _member(text, "arguments") or "{}"
    if isinstance(arguments, str):
        _json(arguments, "'arguments'")
        return name, arguments.strip()
    raise CallMalformedError("'arguments' is not an object")


def _json(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        raise CallMalformedError(f"{what} is not valid JSON: {problem}") from None
    if not isinstance(value, dict):
        raise CallMalformedError(f"{what} is not an object")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _member(text: str, wanted: str) -> str:
    """The text of a member's value in the text of a JSON object; the last one counts."""
    decoder = json.JSONDecoder()
    found = ""
    at = _skip_blank(text, 1)
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        begin = _skip_blank(text, _skip_blank(text, at) + 1)
        _, at = decoder.raw_decode(text, begin)
        if key == wanted:
            found = text[begin:at]
        at = _skip_blank(text, at)
        if text[at] == ",":
            at = _skip_blank(text, at + 1)
    return found


def _parse_xml(text: str, tools: Mapping[str, Tool]) -> tuple[str, str]:
    head = _FUNCTION_TAG.match(text)
    if head is None or not text.endswith(_FUNCTION_END):
        raise CallMalformedError("the <function=…> element is not whole")
    tool = _known(head[1].strip(), tools)
    schema = json.loads(tool.parameters)
    inner = text[head.end() : -len(_FUNCTION_END)].rstrip()
    arguments: dict[str, str] = {}
    at = 0
    while at < len(inner):
        tag = _PARAMETER_TAG.match(inner, at)
        if tag is None:
            raise CallMalformedError("there is text between the parameters")
        end = _PARAMETER_END.search(inner, tag.end())
        if end is None:
            raise CallMalformedError(f"the parameter '{tag[1]}' has no end")
        name = tag[1].strip()
        if name in arguments:
            raise CallMalformedError(f"the parameter '{name}' is there twice")
        value = inner[tag.end() : end.start()].removeprefix("\n").removesuffix("\n")
        arguments[name] = _typed(name, value, schema)
        at = end.end()
    members = (f"{_dumps(name)}: {value}" for name, value in arguments.items())
    return tool.name, "{" + ", ".join(members) + "}"


def _known(name: str, tools: Mapping[str, Tool]) -> Tool:
    if name not in tools:
        raise CallMalformedError(f"there is no tool named '{name[:80]}'")
    return tools[name]


def _typed(name: str, value: str, schema: Any) -> str:
    """The value as JSON text, of a type that the tool's schema wants."""
    types = parameter_types(name, schema)
    text = _WORDS.get(value.strip().lower(), value.strip())
    if _json_types(text) & types - {"string"}:
        return text
    if types and "string" not in types:
        raise CallMalformedError(f"the parameter '{name}' is not {' or '.join(sorted(types))}")
    return _dumps(value)


def parameter_types(name: str, schema: Any) -> set[str]:
    """The JSON types that a tool's schema allows for a parameter, empty if it does not say."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    wanted = properties.get(name) if isinstance(properties, dict) else None
    return _types(wanted, schema, _MAX_REFS)


def _types(schema: Any, root: Any, depth: int) -> set[str]:
    """The JSON types that a schema allows, empty if it does not say."""
    if not isinstance(schema, dict) or depth == 0:
        return set()
    if isinstance(ref := schema.get("$ref"), str):
        return _types(_resolve(ref, root), root, depth - 1)
    if isinstance(kind := schema.get("type"), str):
        return {kind}
    if isinstance(kind, list):
        return {one for one in kind if isinstance(one, str)}
    for word in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(word), list):
            each = [_types(choice, root, depth - 1) for choice in choices]
            return set.union(*each) if each and all(each) else set()
    if isinstance(values := schema.get("enum"), list):
        return set[str]().union(*(_json_types(_dumps(value)) for value in values))
    return _json_types(_dumps(schema["const"])) if "const" in schema else set()


def _resolve(ref: str, root: Any) -> Any:
    found = root
    for part in ref.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _json_types(text: str) -> set[str]:
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return set()
    return json_types(value)


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _skip_blank(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank is not None else at
