"""From a model's raw text to what it means: thinking, calls of tools, and the answer. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from veriloop_tui.core.chat import (
    CandidateEnded,
    ChatEvent,
    ChatFinished,
    FinishReason,
    MalformedCall,
    ReasoningDelta,
    TextDelta,
    Tool,
    ToolCall,
    ToolCalled,
)
from veriloop_tui.engine.answer.reasoning import ThinkingMarkers
from veriloop_tui.engine.answer.tool_calls import (
    CLOSING,
    OPENING,
    CallEnd,
    CallMalformedError,
    parse_call,
)

_Region = Literal["lead", "thinking", "answer", "call"]


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """How an answer is to be read.

    `opened` says that it begins inside the thinking. Calls are looked for where there are `tools`.
    """

    markers: ThinkingMarkers
    opened: bool = False
    tools: tuple[Tool, ...] = ()


class Reading:
    """Reads the candidates of one request, each by itself.

    What comes out does not depend on how the text was cut into deltas, except for the cuts.
    """

    def __init__(self, form: AnswerForm, n: int, ident: Callable[[], str]) -> None:
        """`ident` makes the id of each call."""
        self._readers = [_Reader(index, form, ident) for index in range(n)]

    def take(self, event: ChatEvent) -> list[ChatEvent]:
        """What one raw event of the decode loop means."""
        match event:
            case TextDelta():
                return self._readers[event.index].push(event.text)
            case CandidateEnded():
                reader = self._readers[event.index]
                rest = reader.finish()
                return [*rest, replace(event, finish_reason=reader.reason(event.finish_reason))]
            case ChatFinished():
                # Of several candidates each has ended before; to end one twice says nothing.
                rest = [one for reader in self._readers for one in reader.finish()]
                reason = self._readers[0].reason(event.finish_reason)
                return [*rest, replace(event, finish_reason=reason)]
            case ReasoningDelta() | ToolCalled() | MalformedCall():
                return [event]
            case _:
                assert_never(event)


class _Reader:
    """Reads one candidate. Thinking is looked for where a message, or a part of it, begins."""

    def __init__(self, index: int, form: AnswerForm, ident: Callable[[], str]) -> None:
        self._index, self._form, self._ident = index, form, ident
        self._region: _Region = "thinking" if form.opened else "lead"
        self._buffer = ""
        self._final = False
        self._fresh = True  # nothing was read yet, not even a marker
        self._gap = ""  # goes before the next piece of thinking
        self._thought = self._answered = self._called = False
        self._call_in_thinking = False
        self._call_end = CallEnd()
        self._events: list[ChatEvent] = []

    def push(self, text: str) -> list[ChatEvent]:
        """Take the next text; what is certain by now."""
        self._buffer += text
        while self._step():
            pass
        events, self._events = self._events, []
        return events

    def finish(self) -> list[ChatEvent]:
        """The rest, once nothing more comes."""
        self._final = True
        return self.push("")

    def reason(self, raw: FinishReason) -> FinishReason:
        """Why the candidate ended, given why the decode loop did."""
        return "tool_calls" if raw == "stop" and self._called else raw

    def _step(self) -> bool:
        """Read on in one region; whether another one may be read now."""
        match self._region:
            case "lead":
                return self._lead()
            case "thinking":
                return self._think()
            case "answer":
                return self._answer()
            case "call":
                return self._call()
            case _:
                assert_never(self._region)

    def _lead(self) -> bool:
        text = self._buffer.lstrip()
        start = self._form.markers.start
        if text.startswith(start):
            self._buffer = text[len(start) :]
            self._region, self._fresh = "thinking", False
            self._gap = "\n\n" if self._thought else ""
            return True
        if self._form.tools and text.startswith(OPENING):
            self._begin_call(text[len(OPENING) :], in_thinking=False)
            return True
        possible = (start, OPENING) if self._form.tools else (start,)
        if not self._final and any(marker.startswith(text) for marker in possible):
            return False
        # Blanks behind a marker belong to it, those between two parts of an answer do not.
        if not (self._fresh or (self._answered and text)):
            self._buffer = text
        self._region = "answer"
        return True

    def _think(self) -> bool:
        end = self._form.markers.end
        marker, at = self._first(end, OPENING) if self._form.tools else self._first(end)
        if not marker:
            self._emit_thought(self._certain(end))
            return False
        rest = self._buffer[at + len(marker) :]
        self._emit_thought(self._buffer[:at].rstrip())
        if marker == end:
            self._buffer, self._region, self._fresh = rest, "lead", False
        else:
            self._begin_call(rest, in_thinking=True)
        return True

    def _answer(self) -> bool:
        if self._form.tools:
            marker, at = self._first(OPENING)
            if marker:
                rest = self._buffer[at + len(OPENING) :]
                self._emit_text(self._buffer[:at].rstrip())
                self._begin_call(rest, in_thinking=False)
                return True
        whole = self._final or not self._form.tools
        self._emit_text(self._buffer if whole else self._certain())
        return False

    def _call(self) -> bool:
        end = self._call_end.find(self._buffer)
        if end is None and not self._final:
            return False
        if end is None:
            end = self._buffer.find(CLOSING)
        body, closed = (self._buffer[:end], CLOSING) if end >= 0 else (self._buffer, "")
        self._buffer = self._buffer[len(body) + len(closed) :]
        try:
            name, arguments = parse_call(body, self._form.tools)
        except CallMalformedError as malformed:
            raw = OPENING + body + closed
            problem = malformed.problem if closed else f"it is not finished: {malformed.problem}"
            self._emit_malformed(raw, problem)
        else:
            self._called = True
            call = ToolCall(self._ident(), name, arguments)
            self._events.append(ToolCalled(call, self._index))
        self._region = "thinking" if self._call_in_thinking else "lead"
        return True

    def _begin_call(self, rest: str, *, in_thinking: bool) -> None:
        self._buffer, self._region, self._fresh = rest, "call", False
        self._call_in_thinking = in_thinking
        self._call_end = CallEnd()

    def _first(self, *markers: str) -> tuple[str, int]:
        """The marker that comes first, and where; an empty one if there is none."""
        found = [(at, one) for one in markers if (at := self._buffer.find(one)) >= 0]
        at, marker = min(found, default=(-1, ""))
        return marker, at

    def _certain(self, *markers: str) -> str:
        """The text that no marker can begin in, and no blanks before one."""
        text = self._buffer
        if not self._final:
            wanted = (*markers, OPENING) if self._form.tools else markers
            text = text[: len(text) - max(_overlap(text, one) for one in wanted)]
        return text.rstrip()

    def _emit_thought(self, text: str) -> None:
        self._buffer = self._buffer[len(text) :]
        text = text.lstrip() if self._gap or not self._thought else text
        if text:
            self._events.append(ReasoningDelta(self._gap + text, self._index))
            self._thought, self._gap = True, ""

    def _emit_text(self, text: str) -> None:
        self._buffer = self._buffer[len(text) :]
        if text:
            self._events.append(TextDelta(text, self._index))
            self._answered = True

    def _emit_malformed(self, raw: str, problem: str) -> None:
        """The text stays where it stood: nothing that the model wrote is lost."""
        if self._call_in_thinking:
            self._events.append(ReasoningDelta(self._gap + raw, self._index))
            self._thought, self._gap = True, ""
        else:
            self._events.append(TextDelta(raw, self._index))
            self._answered = True
        self._events.append(MalformedCall(raw, problem, self._index))


def _overlap(text: str, marker: str) -> int:
    """The length of the longest end of the text that begins the marker."""
    most = min(len(marker) - 1, len(text))
    return next((n for n in range(most, 0, -1) if marker.startswith(text[-n:])), 0)
