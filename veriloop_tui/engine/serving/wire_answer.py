"""What goes back, in the OpenAI protocol's terms: answers whole or in chunks, models, errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, assert_never

from veriloop_tui.core.chat import (
    CandidateEnded,
    ChatEvent,
    ChatFinished,
    FinishReason,
    MalformedCall,
    ModelFacts,
    ReasoningDelta,
    TextDelta,
    ToolCalled,
)
from veriloop_tui.errors import ContextTooLong, EngineError, EngineRefused, TemplateError

Object = dict[str, Any]


class Answer(Protocol):
    """One answer on its way out. Every event goes to `take`, whichever form is sent."""

    def begin(self) -> list[Object]:
        """The chunks before the first event."""
        ...

    def take(self, event: ChatEvent) -> list[Object]:
        """The chunks that an event makes."""
        ...

    def whole(self) -> Object:
        """The whole answer, after the last event."""
        ...


@dataclass(slots=True)
class _Candidate:
    text: str = ""
    reasoning: str = ""
    calls: list[Object] = field(default_factory=list)
    malformed: list[Object] = field(default_factory=list)
    reason: FinishReason | None = None


class ChatAnswer:
    """An answer of `POST /v1/chat/completions`."""

    def __init__(
        self, head: Object, n: int, wants_usage: bool, count_tokens: Callable[[str], int]
    ) -> None:
        """`head`: id, time and model; `count_tokens` tells how many tokens the thinking has."""
        self._head, self._wants_usage, self._count = head, wants_usage, count_tokens
        self._candidates = [_Candidate() for _ in range(n)]
        self._spent: Object = {}

    def begin(self) -> list[Object]:
        """The chunks that name the speaker."""
        opening = {"role": "assistant", "content": ""}
        return [self._chunk(index, opening) for index in range(len(self._candidates))]

    def take(self, event: ChatEvent) -> list[Object]:
        """The chunks that an event makes."""
        match event:
            case TextDelta(text, index):
                self._candidates[index].text += text
                return [self._chunk(index, {"content": text})]
            case ReasoningDelta(text, index):
                self._candidates[index].reasoning += text
                return [self._chunk(index, {"reasoning_content": text})]
            case ToolCalled(call, index):
                calls = self._candidates[index].calls
                function = {"name": call.name, "arguments": call.arguments}
                calls.append({"id": call.ident, "type": "function", "function": function})
                return [
                    self._chunk(index, {"tool_calls": [{"index": len(calls) - 1, **calls[-1]}]})
                ]
            case MalformedCall(text, problem, index):
                malformed = {"text": text, "problem": problem}
                self._candidates[index].malformed.append(malformed)
                return [self._chunk(index, {"malformed_tool_calls": [malformed]})]
            case CandidateEnded(index, reason):
                self._candidates[index].reason = reason
                return [self._chunk(index, {}, reason)]
            case ChatFinished():
                return self._end(event)
            case _:
                assert_never(event)

    def whole(self) -> Object:
        """The whole answer."""
        choices = [_choice(index, one) for index, one in enumerate(self._candidates)]
        return {**self._head, "object": "chat.completion", "choices": choices, **self._spent}

    def _end(self, event: ChatFinished) -> list[Object]:
        thought = sum(self._count(one.reasoning) for one in self._candidates if one.reasoning)
        self._spent = usage_fields(event, thought)
        last: list[Object] = []
        if len(self._candidates) == 1:
            self._candidates[0].reason = event.finish_reason
            last = [{**self._chunk(0, {}, event.finish_reason), **self._spent}]
        if self._wants_usage:
            # The protocol puts the usage into one more chunk, without choices.
            last.append({**self._chunk(0, {}), "choices": [], **self._spent})
        return last

    def _chunk(self, index: int, delta: Object, reason: FinishReason | None = None) -> Object:
        choice = {"index": index, "delta": delta, "finish_reason": reason}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}


def _choice(index: int, candidate: _Candidate) -> Object:
    message: Object = {"role": "assistant", "content": candidate.text}
    if candidate.calls and not candidate.text:
        message["content"] = None
    for name, value in (
        ("reasoning_content", candidate.reasoning),
        ("tool_calls", candidate.calls),
        ("malformed_tool_calls", candidate.malformed),
    ):
        if value:
            message[name] = value
    return {"index": index, "message": message, "finish_reason": candidate.reason}


class TextAnswer:
    """An answer of `POST /v1/completions`: text only."""

    def __init__(self, head: Object, n: int, wants_usage: bool) -> None:
        """`head`: id, time and model."""
        self._head = {**head, "object": "text_completion"}
        self._wants_usage = wants_usage
        self._candidates = [_Candidate() for _ in range(n)]
        self._spent: Object = {}

    def begin(self) -> list[Object]:
        """Nothing comes before the text."""
        return []

    def take(self, event: ChatEvent) -> list[Object]:
        """The chunks that an event makes."""
        match event:
            case TextDelta(text, index):
                self._candidates[index].text += text
                return [self._chunk(index, text)]
            case CandidateEnded(index, reason):
                self._candidates[index].reason = reason
                return [self._chunk(index, "", reason)]
            case ChatFinished():
                return self._end(event)
            case ReasoningDelta() | ToolCalled() | MalformedCall():
                raise TypeError("a text without a template has no parts")
            case _:
                assert_never(event)

    def whole(self) -> Object:
        """The whole answer."""
        choices = [
            _text_choice(index, one.text, one.reason) for index, one in enumerate(self._candidates)
        ]
        return {**self._head, "choices": choices, **self._spent}

    def _end(self, event: ChatFinished) -> list[Object]:
        self._spent = usage_fields(event, 0)
        last: list[Object] = []
        if len(self._candidates) == 1:
            self._candidates[0].reason = event.finish_reason
            last = [{**self._chunk(0, "", event.finish_reason), **self._spent}]
        if self._wants_usage:
            last.append({**self._head, "choices": [], **self._spent})
        return last

    def _chunk(self, index: int, text: str, reason: FinishReason | None = None) -> Object:
        return {**self._head, "choices": [_text_choice(index, text, reason)]}


def _text_choice(index: int, text: str, reason: FinishReason | None) -> Object:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}


def error_answer(error: EngineError) -> tuple[int, Object]:
    """The HTTP status and the protocol's error object."""
    fields: Object = {}
    match error:
        case ContextTooLong():
            status, kind, message = 400, "exceed_context_size_error", str(error)
            fields = {"n_prompt_tokens": error.n_prompt, "n_ctx": error.n_ctx}
        case EngineRefused():
            status, message = error.status, error.message
            kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
        case TemplateError():
            status, kind, message = 400, "template_error", error.problem
        case _:
            status, kind, message = 500, "server_error", str(error)
    return status, {"error": {"message": message, "type": kind, "code": status, **fields}}


_KINDS: Mapping[int, str] = {401: "authentication_error", 404: "not_found_error"}


def usage_fields(end: ChatFinished, reasoning_tokens: int) -> Object:
    """`usage` as OpenAI and `timings` as llama-server write them, and our own part of the usage."""
    usage, timings = end.usage, end.timings
    drafted: Object = {}
    if usage.drafted_tokens:
        drafted = {"draft_n": usage.drafted_tokens, "draft_n_accepted": usage.accepted_tokens}
    return {
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.reused_tokens},
            "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
            "veriloop": {
                "reused_tokens": usage.reused_tokens,
                "evaluated_tokens": usage.evaluated_tokens,
                "drafted_tokens": usage.drafted_tokens,
                "accepted_tokens": usage.accepted_tokens,
            },
        },
        "timings": {
            "cache_n": usage.reused_tokens,
            **_rates("prompt", usage.evaluated_tokens, timings.prompt_ms),
            **_rates("predicted", usage.completion_tokens, timings.predicted_ms),
            **drafted,
        },
    }


def models_answer(facts: ModelFacts) -> Object:
    """The body of `GET /v1/models`."""
    return {"object": "list", "data": [model_answer(facts)]}


def model_answer(facts: ModelFacts) -> Object:
    """One model, with what is known of it as `meta`."""
    known = {"id": facts.name, "object": "model", "created": 0, "owned_by": "local"}
    return {**known, "meta": asdict(facts)}


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
