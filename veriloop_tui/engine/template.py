"""The GGUF's own chat template, rendered in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from veriloop_tui.core.chat import Message
from veriloop_tui.errors import TemplateError

# What the code of a template can raise by itself; everything else is a bug of ours.
_TEMPLATE_FAULTS = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


class ChatTemplate:
    """A compiled template. It is part of the model's protocol, so nothing ever stands in for it."""

    def __init__(
        self, source: str, bos: str, eos: str, clock: Callable[[], datetime] = datetime.now
    ) -> None:
        """Compile `source`. Raises `TemplateError` if it is empty or not valid."""
        if not source:
            raise TemplateError("the GGUF has none; use an instruct model")
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: clock().strftime(form)
        self._bos, self._eos = bos, eos
        try:
            self._template = environment.from_string(source)
        except _TEMPLATE_FAULTS as problem:
            raise TemplateError(str(problem)) from problem

    def render(self, messages: Sequence[Message], continue_final_message: bool = False) -> str:
        """The prompt that asks for the next assistant message.

        With `continue_final_message` the last message must be the assistant's; its text ends the
        prompt exactly as it is. Raises `TemplateError` if the template refuses the messages.
        """
        if not messages:
            raise TemplateError("there is no message to answer")
        if not continue_final_message:
            return self._render(messages)
        last = messages[-1]
        if last.role != "assistant":
            raise TemplateError(f"a final message of the {last.role} cannot be continued")
        return self._render(messages[:-1]) + last.content

    def _render(self, messages: Sequence[Message]) -> str:
        try:
            return self._template.render(
                messages=[{"role": one.role, "content": one.content} for one in messages],
                add_generation_prompt=True,
                bos_token=self._bos,
                eos_token=self._eos,
                tools=None,
                documents=None,
            )
        except _TEMPLATE_FAULTS as problem:
            raise TemplateError(str(problem)) from problem


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _tojson(value: object, indent: int | None = None) -> str:
    """JSON as model authors expect it: jinja2's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
