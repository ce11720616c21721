"""The border of the engine's HTTP interface: what a request may hold, what an answer looks like."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from veriloop_tui.core.chat import ChatFinished, ChatRequest, Message, ModelFacts, Sampling
from veriloop_tui.errors import ContextTooLong, EngineError, EngineRefused, TemplateError

_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
_DEFAULTS = Sampling()

StopText = Annotated[str, Field(min_length=1, max_length=1_000)]


class TextPart(BaseModel):
    """One part of a message's content; only text is understood."""

    model_config = _STRICT

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """One message as the protocol writes it."""

    model_config = _STRICT

    role: Literal["system", "user", "assistant"]
    content: str | list[TextPart]

    def core(self) -> Message:
        """The message in our own terms, its parts joined."""
        if isinstance(self.content, str):
            return Message(self.role, self.content)
        return Message(self.role, "".join(part.text for part in self.content))


class StreamOptions(BaseModel):
    """Options of a streamed answer."""

    model_config = _STRICT

    include_usage: bool = False


class ChatBody(BaseModel):
    """The body of `POST /v1/chat/completions`.

    Unknown fields are ignored, as the protocol wants; those that would change the answer and are
    not supported are refused.
    """

    model_config = _STRICT

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    model: str = ""
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=1 << 31)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repeat_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    seed: int | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=64)] | None = None
    continue_final_message: bool = False

    @model_validator(mode="before")
    @classmethod
    def _refuse_what_would_be_lost(cls, body: Any) -> Any:
        if isinstance(body, dict):
            for field in ("tools", "functions", "response_format", "logprobs", "logit_bias"):
                if body.get(field):
                    raise ValueError(f"'{field}' is not supported by this engine")
            if body.get("n") not in (None, 1):
                raise ValueError("'n' must be 1")
        return body

    def core(self) -> ChatRequest:
        """The request in our own terms; a missing seed is drawn, a missing bound is very large."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        given = {
            name: value
            for name in ("temperature", "top_k", "top_p", "min_p", "repeat_penalty")
            if (value := getattr(self, name)) is not None
        }
        return ChatRequest(
            messages=tuple(message.core() for message in self.messages),
            sampling=Sampling(**{**asdict(_DEFAULTS), **given}),
            seed=secrets.randbits(31) if self.seed is None else self.seed,
            max_tokens=self.max_completion_tokens or self.max_tokens or 1 << 31,
            stop=stop,
            continue_final_message=self.continue_final_message,
        )


def parse_body(body: bytes) -> ChatBody:
    """The body of a completion request. Raises `EngineRefused` (400) that names the field."""
    try:
        return ChatBody.model_validate_json(body)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        message = f"{where}: {first['msg']}" if where else str(first["msg"])
        raise EngineRefused(400, message) from None


def error_answer(error: EngineError) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the protocol's error object."""
    fields: dict[str, Any] = {}
    match error:
        case ContextTooLong():
            status, kind, message = 400, "exceed_context_size_error", str(error)
            fields = {"n_prompt_tokens": error.n_prompt, "n_ctx": error.n_ctx}
        case EngineRefused():
            status, message = error.status, error.message
            kind = "invalid_request_error" if status < 500 else "server_error"
        case TemplateError():
            status, kind, message = 400, "template_error", error.problem
        case _:
            status, kind, message = 500, "server_error", str(error)
    return status, {"error": {"message": message, "type": kind, "code": status, **fields}}


def usage_fields(end: ChatFinished) -> dict[str, Any]:
    """`usage` as OpenAI and `timings` as llama-server write them."""
    usage, timings = end.usage, end.timings
    return {
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.reused_tokens},
        },
        "timings": {
            "cache_n": usage.reused_tokens,
            **_rates("prompt", usage.evaluated_tokens, timings.prompt_ms),
            **_rates("predicted", usage.completion_tokens, timings.predicted_ms),
        },
    }


def models_answer(facts: ModelFacts) -> dict[str, Any]:
    """The body of `GET /v1/models`."""
    model = {"id": facts.name, "object": "model", "created": 0, "owned_by": "local"}
    return {"object": "list", "data": [{**model, "meta": asdict(facts)}]}


def whole_answer(head: Mapping[str, Any], text: str, end: ChatFinished) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": end.finish_reason,
    }
    return {**head, "object": "chat.completion", "choices": [choice], **usage_fields(end)}


def chunk(
    head: Mapping[str, Any], delta: Mapping[str, str], finish_reason: str | None = None
) -> dict[str, Any]:
    """One piece of a streamed answer."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {**head, "object": "chat.completion.chunk", "choices": [choice]}


def sse(data: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def _rates(name: str, tokens: int, ms: float) -> dict[str, float]:
    return {
        f"{name}_n": tokens,
        f"{name}_ms": ms,
        f"{name}_per_token_ms": ms / tokens if tokens else 0.0,
        f"{name}_per_second": tokens * 1e3 / ms if ms > 0 else 0.0,
    }
