"""The body of `POST /v1/chat/completions`: messages, tools, and the structure of the answer."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AliasChoices, BaseModel, Field, field_validator, model_validator

from veriloop_tui.core.chat import (
    ChatRequest,
    Grammar,
    JsonSchema,
    Message,
    Role,
    Structure,
    TemplateValue,
    Tool,
    ToolCall,
)
from veriloop_tui.engine.serving.wire_fields import NO_BOUND, STRICT, CompletionBody

_MAX_TOOLS: Final = 256
_ANY_OBJECT: Final = '{"type": "object"}'

# Names stand inside markup that models write, so they hold nothing that could end it.
ToolName = Annotated[str, Field(pattern=r"^[^<>\s\"\\]{1,128}$")]


class TextPart(BaseModel):
    """One part of a message's content; only text is understood."""

    model_config = STRICT

    type: Literal["text"]
    text: str


class CalledFunction(BaseModel):
    """The function of a call that the model made before."""

    model_config = STRICT

    name: ToolName
    arguments: str = "{}"


class MadeCall(BaseModel):
    """A call that the model made before."""

    model_config = STRICT

    id: str = ""
    type: Literal["function"] = "function"
    function: CalledFunction

    def core(self) -> ToolCall:
        """The call in our own terms."""
        return ToolCall(self.id, self.function.name, self.function.arguments)


class ChatMessage(BaseModel):
    """One message as the protocol writes it."""

    model_config = STRICT

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    reasoning_content: str | None = Field(
        None, validation_alias=AliasChoices("reasoning_content", "reasoning")
    )
    tool_calls: list[MadeCall] | None = None
    tool_call_id: str = ""

    @field_validator("content", mode="before")
    @classmethod
    def _only_text(cls, content: Any) -> Any:
        if isinstance(content, list):
            for part in content:
                kind = part.get("type") if isinstance(part, dict) else None
                if kind != "text":
                    raise ValueError("only parts of type 'text' are understood")
        return content

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.content is None and self.role != "assistant":
            raise ValueError("'content' is missing")
        return self

    def core(self) -> Message:
        """The message in our own terms, its parts joined."""
        content = self.content or ""
        if not isinstance(content, str):
            content = "".join(part.text for part in content)
        role: Role = "system" if self.role == "developer" else self.role
        if role != "assistant":
            return Message(role, content, tool_call_id=self.tool_call_id)
        calls = tuple(call.core() for call in self.tool_calls or ())
        return Message(role, content, self.reasoning_content or "", calls)


class Function(BaseModel):
    """A function that the model may call."""

    model_config = STRICT

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None


class OfferedTool(BaseModel):
    """A tool that the model may call."""

    model_config = STRICT

    type: Literal["function"]
    function: Function

    def core(self) -> Tool:
        """The tool in our own terms."""
        parameters = self.function.parameters or {"type": "object", "properties": {}}
        text = json.dumps(parameters, ensure_ascii=False)
        return Tool(self.function.name, self.function.description or "", text)


class NamedFunction(BaseModel):
    """The name of a function that must be called."""

    model_config = STRICT

    name: ToolName


class NamedTool(BaseModel):
    """The tool that must be called."""

    model_config = STRICT

    type: Literal["function"]
    function: NamedFunction


class NamedSchema(BaseModel):
    """A JSON schema with its name, which nothing depends on."""

    model_config = STRICT

    schema_: dict[str, Any] | bool = Field(True, alias="schema")


class ResponseFormat(BaseModel):
    """What the answer must be."""

    model_config = STRICT

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")

    def core(self) -> Structure | None:
        """The structure in our own terms."""
        match self.type:
            case "text":
                return None
            case "json_object":
                # llama-server takes a schema here as well.
                return JsonSchema(json.dumps(self.schema_) if self.schema_ else _ANY_OBJECT)
            case "json_schema":
                found = self.json_schema.schema_ if self.json_schema else self.schema_
                return JsonSchema(json.dumps(True if found is None else found))


class ChatBody(CompletionBody):
    """The body of a chat completion."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    continue_final_message: bool = False
    tools: Annotated[list[OfferedTool], Field(max_length=_MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    json_schema: dict[str, Any] | None = None
    thinking_budget_tokens: Annotated[int, Field(ge=-1)] | None = Field(
        None, validation_alias=AliasChoices("thinking_budget_tokens", "reasoning_budget_tokens")
    )
    chat_template_kwargs: dict[str, TemplateValue] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        names = [tool.function.name for tool in self.tools or ()]
        if len(set(names)) < len(names):
            raise ValueError("'tools' holds two of the same name")
        if self.tool_choice in (None, "none", "auto") and names:
            if self.parallel_tool_calls is False and self.tool_choice != "none":
                raise ValueError(
                    "'parallel_tool_calls' must be true: the model decides how many calls it makes"
                )
        elif isinstance(self.tool_choice, NamedTool):
            if self.tool_choice.function.name not in names:
                raise ValueError("'tool_choice' names a tool that is not among 'tools'")
        elif self.tool_choice == "required" and not names:
            raise ValueError("'tool_choice' is 'required' and there are no 'tools'")
        wanted = (self.grammar, self.json_schema, self.response_format)
        if sum(one is not None for one in wanted) > 1:
            raise ValueError("only one of 'response_format', 'json_schema', 'grammar' can be held")
        return self

    def core(self) -> ChatRequest:
        """The request in our own terms; a missing seed is drawn, a missing bound is very large."""
        tools = () if self.tool_choice == "none" else tuple(self.tools or ())
        budget = self.thinking_budget_tokens
        return ChatRequest(
            messages=tuple(message.core() for message in self.messages),
            sampling=self.sampling(),
            seed=self.drawn_seed(),
            max_tokens=self.max_completion_tokens or self.max_tokens or NO_BOUND,
            stop=self.stops(),
            continue_final_message=self.continue_final_message,
            n=self.n or 1,
            structure=self._structure(),
            tools=tuple(tool.core() for tool in tools),
            thinking_tokens=None if budget == -1 else budget,
            template_values=tuple((self.chat_template_kwargs or {}).items()),
            must_call=self._must_call(),
        )

    def _structure(self) -> Structure | None:
        if self.grammar is not None:
            return Grammar(self.grammar)
        if self.json_schema is not None:
            return JsonSchema(json.dumps(self.json_schema))
        return self.response_format.core() if self.response_format is not None else None

    def _must_call(self) -> tuple[str, ...]:
        match self.tool_choice:
            case NamedTool(function=function):
                return (function.name,)
            case "required":
                return tuple(tool.function.name for tool in self.tools or ())
            case _:
                return ()
