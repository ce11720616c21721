"""One streamed answer put together: chunks of the protocol in, chat events out. Pure but for time.

The dialects differ in where the usage stands. llama-server sends one usage for each of several
candidates, each with its own tokens; vLLM and OpenAI send one for all; our own engine repeats in a
chunk of its own what its last chunk said. So usages without choices are added up, the last one for
each candidate, and one that comes with choices counts only where there is no other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from veriloop_tui.core.chat import (
    CandidateEnded,
    ChatEvent,
    ChatFinished,
    FinishReason,
    MalformedCall,
    ReasoningDelta,
    TextDelta,
    Timings,
    ToolCall,
    ToolCalled,
    Usage,
)
from veriloop_tui.engine.client.facts import refusal_in
from veriloop_tui.engine.client.stream import GarbledError, count, fields, number, text

_MAX_TEXT: Final = 64 << 20
_MAX_CALLS: Final = 256
_REASONS: Final = get_args(FinishReason)
_FAILED: Final = 500  # what an error in the middle of a stream stands for
_GIVEN_UP: Final = ("abort", "error")


@dataclass(slots=True)
class _Call:
    """A call of a tool as far as it has arrived."""

    index: int
    ident: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Candidate:
    index: int
    reason: FinishReason | None = None
    call: _Call | None = None


class Answer:
    """What has arrived of one answer. A server without timings has them measured from here."""

    def __init__(self, n: int, clock: Callable[[], float]) -> None:
        """`clock` gives seconds that only grow."""
        self._clock = clock
        self._begun = clock()
        self._first: float | None = None
        self._deltas = 0
        self._calls = 0
        self._size = 0
        self._candidates = [_Candidate(index) for index in range(n)]
        self._usages: list[Usage] = []
        self._spare: Usage | None = None
        self._timings: list[Timings] = []

    @property
    def told_timings(self) -> bool:
        """Whether the server has told timings of its own."""
        return bool(self._timings)

    def take(self, chunk: dict[str, Any]) -> Iterator[ChatEvent]:
        """What one chunk of the stream says. Raises `GarbledError`, `EngineRefused`."""
        if "error" in chunk and (refused := refusal_in(_FAILED, chunk)) is not None:
            raise refused
        choices = chunk.get("choices")
        choices = choices if isinstance(choices, list) else []
        self._note_cost(chunk, alone=not choices)
        for choice in choices:
            yield from self._take_choice(fields(choice))

    def finished(self) -> ChatFinished:
        """The end as the server told it. Raises `GarbledError` where it told none."""
        first = self._candidates[0].reason
        if first is None or any(one.reason is None for one in self._candidates):
            raise GarbledError("its answer broke off")
        return ChatFinished(first, self._usage(), self._spent())

    def cancelled(self) -> ChatFinished:
        """The end of an answer that was given up; its prompt's tokens are not known."""
        return ChatFinished("cancelled", Usage(0, self._deltas, 0), self._measured())

    def _usage(self) -> Usage:
        if self._usages:
            return _added(self._usages)
        if self._spare is None:
            raise GarbledError("it does not report the tokens it used, so no budget could be kept")
        return self._spare

    def _note_cost(self, chunk: dict[str, Any], *, alone: bool) -> None:
        timings = fields(chunk.get("timings"))
        if timings:
            self._timings.append(
                Timings(number(timings, "prompt_ms"), number(timings, "predicted_ms"))
            )
        usage = fields(chunk.get("usage"))
        if not usage:
            return
        if alone:
            self._usages = [*self._usages, _usage(usage, timings)][-len(self._candidates) :]
        else:
            self._spare = _usage(usage, timings)

    def _take_choice(self, choice: dict[str, Any]) -> Iterator[ChatEvent]:
        index = choice.get("index", 0)
        if not isinstance(index, int) or not 0 <= index < len(self._candidates):
            raise GarbledError("it sends a candidate that nobody asked for")
        candidate = self._candidates[index]
        delta = fields(choice.get("delta"))
        # vLLM calls the thinking `reasoning`, everybody else `reasoning_content`.
        thought = text(delta.get("reasoning_content")) or text(delta.get("reasoning"))
        if thought:
            self._count(thought)
            yield ReasoningDelta(thought, index)
        if said := text(delta.get("content")):
            self._count(said)
            yield TextDelta(said, index)
        yield from self._take_calls(candidate, delta.get("tool_calls"))
        malformed = delta.get("malformed_tool_calls")
        for one in malformed if isinstance(malformed, list) else []:
            yield MalformedCall(
                text(fields(one).get("text")), text(fields(one).get("problem")), index
            )
        reason = choice.get("finish_reason")
        if reason is not None and candidate.reason is None:
            yield from self._end(candidate, text(reason, 40))

    def _take_calls(self, candidate: _Candidate, parts: object) -> Iterator[ChatEvent]:
        for part in parts if isinstance(parts, list) else []:
            found = fields(part)
            number_of_call = count(found, "index")
            if candidate.call is None or candidate.call.index != number_of_call:
                yield from _closed(candidate)
                self._calls += 1
                if self._calls > _MAX_CALLS:
                    raise GarbledError("it sends calls of tools without end")
                candidate.call = _Call(number_of_call)
            function = fields(found.get("function"))
            candidate.call.ident = candidate.call.ident or text(found.get("id"), 200)
            candidate.call.name = candidate.call.name or text(function.get("name"), 200)
            arguments = text(function.get("arguments"))
            self._count(arguments)
            candidate.call.arguments.append(arguments)

    def _end(self, candidate: _Candidate, reason: str) -> Iterator[ChatEvent]:
        if reason in _GIVEN_UP:
            raise GarbledError("it gave the answer up")
        yield from _closed(candidate)
        candidate.reason = _reason(reason)
        if len(self._candidates) > 1:
            yield CandidateEnded(candidate.index, candidate.reason)

    def _count(self, piece: str) -> None:
        self._first = self._first or self._clock()
        self._deltas += 1
        self._size += len(piece)
        if self._size > _MAX_TEXT:
            raise GarbledError("its answer is too large")

    def _spent(self) -> Timings:
        """As told; the candidates of one request run side by side."""
        if not self._timings:
            return self._measured()
        return Timings(
            max(one.prompt_ms for one in self._timings),
            max(one.predicted_ms for one in self._timings),
        )

    def _measured(self) -> Timings:
        now = self._clock()
        first = self._first or now
        return Timings((first - self._begun) * 1e3, (now - first) * 1e3)


def _closed(candidate: _Candidate) -> Iterator[ChatEvent]:
    """The call that was under way, now that it has ended."""
    call, candidate.call = candidate.call, None
    if call is None:
        return
    arguments = "".join(call.arguments)
    if not call.name:
        yield MalformedCall(arguments, "it names no tool", candidate.index)
        return
    try:
        known = isinstance(json.loads(arguments or "{}"), dict)
    except (ValueError, RecursionError):
        known = False
    if known:
        made = ToolCall(call.ident, call.name, arguments or "{}")
        yield ToolCalled(made, candidate.index)
    else:
        problem = f"the arguments of '{call.name}' are not a JSON object"
        yield MalformedCall(arguments, problem, candidate.index)


def _reason(reason: str) -> FinishReason:
    if reason == "function_call":
        return "tool_calls"
    known: dict[str, FinishReason] = {one: one for one in _REASONS}
    return known.get(reason, "stop")


def _usage(usage: dict[str, Any], timings: dict[str, Any]) -> Usage:
    """One usage object, with what llama-server's timings and our own engine add to it."""
    own = fields(usage.get("veriloop"))
    prompt = count(usage, "prompt_tokens")
    reused = count(fields(usage.get("prompt_tokens_details")), "cached_tokens")
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=count(usage, "completion_tokens"),
        reused_tokens=min(prompt, reused or count(own, "reused_tokens")),
        drafted_tokens=count(own, "drafted_tokens") or count(timings, "draft_n"),
        accepted_tokens=count(own, "accepted_tokens") or count(timings, "draft_n_accepted"),
    )


def _added(usages: list[Usage]) -> Usage:
    """The usage of all candidates: the prompt they share counts once."""
    return Usage(
        prompt_tokens=max(one.prompt_tokens for one in usages),
        completion_tokens=sum(one.completion_tokens for one in usages),
        reused_tokens=min(one.reused_tokens for one in usages),
        drafted_tokens=sum(one.drafted_tokens for one in usages),
        accepted_tokens=sum(one.accepted_tokens for one in usages),
    )
