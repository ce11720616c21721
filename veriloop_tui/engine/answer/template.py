"""The GGUF's own chat template, rendered in a sandbox."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from veriloop_tui.core.chat import Message, TemplateValue, Tool, ToolCall
from veriloop_tui.engine.answer.bounded import BoundedEnvironment, joined
from veriloop_tui.engine.answer.reasoning import DEFAULT_MARKERS, markers_in
from veriloop_tui.errors import TemplateError

# How a template asks the model to write a call of a tool.
CallForm = Literal["json", "xml"]
TemplateValues = Sequence[tuple[str, TemplateValue]]

_OWN_NAMES = frozenset(
    ("messages", "tools", "documents", "bos_token", "eos_token", "add_generation_prompt")
)
_NAMED_OBJECT = re.compile(r"""\{\s*\\?["']name""")
# What the code of a template can raise by itself; everything else is a bug of ours.
_TEMPLATE_FAULTS = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)


class _Generation(Extension):
    """`{% generation %}` marks what a model was trained on; for a prompt it is its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled template. It is part of the model's protocol, so nothing ever stands in for it."""

    def __init__(
        self, source: str, bos: str, eos: str, clock: Callable[[], datetime] = datetime.now
    ) -> None:
        """Compile `source`. Raises `TemplateError` if it is empty or not valid."""
        if not source:
            raise TemplateError("the GGUF has none; use an instruct model")
        environment = BoundedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: clock().strftime(form)
        self._bos, self._eos = bos, eos
        try:
            self._template = environment.from_string(source)
            self._reads = meta.find_undeclared_variables(environment.parse(source))
        except _TEMPLATE_FAULTS as problem:
            raise TemplateError(str(problem)) from problem
        self.thinks = markers_in(source) is not None
        self.markers = markers_in(source) or DEFAULT_MARKERS
        self.call_form = _call_form(source)

    def render(
        self,
        messages: Sequence[Message],
        continue_final_message: bool = False,
        tools: Sequence[Tool] = (),
        values: TemplateValues = (),
    ) -> str:
        """The prompt that asks for the next assistant message.

        With `continue_final_message` the last message must be the assistant's; its text ends the
        prompt exactly as it is, behind thinking that is closed if the template opens one; thinking
        without any text goes on itself. `values` reach the template by name. Raises
        `TemplateError` if the template refuses the messages or has no place for tools.
        """
        if not messages:
            raise TemplateError("there is no message to answer")
        if tools and "tools" not in self._reads:
            raise TemplateError("it has no place for tools; send the request without them")
        if tools and self.call_form is None:
            raise TemplateError("it has a form for tool calls that is not known here")
        if taken := _OWN_NAMES.intersection(name for name, _ in values):
            raise TemplateError(f"the value '{min(taken)}' is not for a request to set")
        if not continue_final_message:
            return self._render(messages, tools, values)
        last = messages[-1]
        if last.role != "assistant" or last.tool_calls:
            raise TemplateError(f"a final message of the {last.role} cannot be continued")
        return self._continued(self._render(messages[:-1], tools, values), last)

    def _continued(self, prompt: str, last: Message) -> str:
        opened = prompt.rstrip().endswith(self.markers.start)
        if last.reasoning:
            prompt += last.reasoning if opened else f"{self.markers.start}\n{last.reasoning}"
            return prompt + self.markers.closing + last.content if last.content else prompt
        if not opened:
            return prompt + last.content
        if last.content.lstrip().startswith(self.markers.start):
            return prompt[: prompt.rfind(self.markers.start)] + last.content
        return prompt + self.markers.closing + last.content

    def _render(
        self, messages: Sequence[Message], tools: Sequence[Tool], values: TemplateValues
    ) -> str:
        names = {call.ident: call.name for one in messages for call in one.tool_calls}
        try:
            pieces = self._template.generate(
                messages=[_message(one, names) for one in messages],
                add_generation_prompt=True,
                bos_token=self._bos,
                eos_token=self._eos,
                tools=[_tool(one) for one in tools] or None,
                documents=None,
                **dict(values),
            )
            return joined(pieces)
        except _TEMPLATE_FAULTS as problem:
            raise TemplateError(str(problem)) from problem


def _call_form(source: str) -> CallForm | None:
    if "<tool_call>" not in source:
        return None
    if "<function=" in source:
        return "xml"
    return "json" if _NAMED_OBJECT.search(source) else None


def _message(message: Message, names: Mapping[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        made["reasoning_content"] = message.reasoning
    if message.tool_calls:
        made["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.role == "tool":
        made["tool_call_id"] = message.tool_call_id
        if message.tool_call_id in names:
            made["name"] = names[message.tool_call_id]
    return made


def _call(call: ToolCall) -> dict[str, Any]:
    # Templates take arguments apart, so they want an object, not the protocol's text.
    arguments: Any = call.arguments
    try:
        parsed = json.loads(call.arguments)
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, dict):
        arguments = parsed
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.ident, "type": "function", "function": function}


def _tool(tool: Tool) -> dict[str, Any]:
    # Some templates want a description, empty or not.
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": json.loads(tool.parameters),
        },
    }


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _tojson(
    value: object,
    indent: int | None = None,
    ensure_ascii: bool = False,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as model authors expect it: jinja2's own filter escapes for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
