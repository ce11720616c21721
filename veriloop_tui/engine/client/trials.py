"""Short requests that show what a server takes: by what comes of them, not by what it says.

Many servers ignore what they do not know without a word, so that nothing is refused says nothing.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from veriloop_tui.core.chat import (
    ChatFinished,
    ChatRequest,
    Grammar,
    JsonSchema,
    Message,
    ReasoningDelta,
    Sampling,
    Structure,
    TextDelta,
)
from veriloop_tui.core.ports import Cancel
from veriloop_tui.engine.client.answer import Answer
from veriloop_tui.engine.client.body import Abilities, ServerKind
from veriloop_tui.engine.client.client import EngineClient
from veriloop_tui.errors import Cancelled, EngineRefused, ServerFailed

WANTED: Final = "8001_OK"
_ASKED: Final = Message("user", f"Reply with exactly {WANTED} and nothing else.")
_FREE: Final = Message("user", "Write a few random words.")
_SMOKE_TOKENS: Final = 512
_SHORT: Final = 12
_COLD: Final = Sampling(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0)
# The hottest that every server takes: two answers are hardly ever the same by chance.
_HOT: Final = Sampling(temperature=2.0, top_k=0, top_p=1.0, min_p=0.0)
# A begun answer of one character makes the prompt a few tokens longer at the most; to close that
# message and begin another one takes more.
_CONTINUED: Final = 4
_DIGIT: Final = Grammar('root ::= "7"')
_OBJECT: Final = JsonSchema(
    '{"type":"object","properties":{"ok":{"type":"boolean"}},'
    '"required":["ok"],"additionalProperties":false}'
)
_OBJECT_TOKENS: Final = 64
_NO_THINKING: Final = (("enable_thinking", False),)
_THOUGHT: Final = re.compile(r"\A.*</think>|<think>.*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Smoke:
    """What came of the smoke test. `seconds` until the answer was there."""

    passed: bool
    answer: str
    seconds: float


@dataclass(frozen=True, slots=True)
class _Said:
    text: str
    thought: str
    prompt_tokens: int
    timings: bool


class Trials:
    """The trials of one server."""

    def __init__(
        self, client: Callable[[Abilities], EngineClient], kind: ServerKind, cancel: Cancel
    ) -> None:
        """`client` makes a client that believes the server to have these abilities."""
        self._client, self._cancel = client, cancel
        self._plain = Abilities(
            kind,
            seed=False,
            samplers=False,
            continues=False,
            candidates=False,
            schema=False,
            grammar=False,
            template_values=kind != "other",
            timings=False,
        )

    def run(self) -> tuple[Smoke, Abilities]:
        """The smoke test, then what the server takes.

        Raises `Cancelled`; `EngineError` where the smoke test gets no answer at all.
        """
        began = time.monotonic()
        first = self._ask(self._plain, _request(_ASKED, max_tokens=_SMOKE_TOKENS))
        answer = _THOUGHT.sub("", first.text).strip()
        smoke = Smoke(answer == WANTED, answer or first.thought, time.monotonic() - began)
        able = replace(self._plain, timings=first.timings)
        able = replace(able, seed=self._same(replace(able, seed=True), _HOT, 7, 7))
        only_best = replace(_HOT, top_k=1)
        able = replace(able, samplers=self._same(replace(able, samplers=True), only_best, 1, 2))
        return smoke, replace(
            able,
            candidates=self._candidates(able),
            continues=self._continues(able, first.prompt_tokens),
            schema=self._schema(able),
            grammar=self._grammar(able),
        )

    def _same(self, able: Abilities, sampling: Sampling, one: int, other: int) -> bool:
        """Whether two seeds give one answer."""
        said = [
            self._try(able, _request(_FREE, sampling=sampling, seed=seed)) for seed in (one, other)
        ]
        return (
            said[0] is not None
            and said[1] is not None
            and ((said[0].text, said[0].thought) == (said[1].text, said[1].thought))
        )

    def _candidates(self, able: Abilities) -> bool:
        wanted = replace(_request(_FREE, max_tokens=1), n=2)
        try:
            return self._try(replace(able, candidates=True), wanted) is not None
        except ServerFailed:
            return False  # The second candidate never came.

    def _continues(self, able: Abilities, prompt_tokens: int) -> bool:
        begun = Message("assistant", WANTED[0])
        wanted = replace(_request(_ASKED), messages=(_ASKED, begun), continue_final_message=True)
        said = self._try(replace(able, continues=True), wanted)
        return said is not None and said.prompt_tokens - prompt_tokens <= _CONTINUED

    def _schema(self, able: Abilities) -> bool:
        wanted = _request(_FREE, max_tokens=_OBJECT_TOKENS, structure=_OBJECT)
        said = self._try(replace(able, schema=True), wanted)
        try:
            value = json.loads(said.text) if said is not None else None
        except (ValueError, RecursionError):
            return False
        return isinstance(value, dict) and isinstance(value.get("ok"), bool)

    def _grammar(self, able: Abilities) -> bool:
        said = self._try(replace(able, grammar=True), _request(_FREE, structure=_DIGIT))
        return said is not None and said.text.strip() == "7"

    def _try(self, able: Abilities, request: ChatRequest) -> _Said | None:
        """What was said, `None` where the server refuses the request."""
        try:
            return self._ask(able, request)
        except EngineRefused:
            return None

    def _ask(self, able: Abilities, request: ChatRequest) -> _Said:
        answer = Answer(request.n, time.monotonic)
        text, thought, prompt_tokens = "", "", 0
        for event in self._client(able).fill(answer, request, self._cancel):
            match event:
                case TextDelta(index=0):
                    text += event.text
                case ReasoningDelta(index=0):
                    thought += event.text
                case ChatFinished():
                    if event.finish_reason == "cancelled":
                        raise Cancelled
                    prompt_tokens = event.usage.prompt_tokens
        return _Said(text, thought, prompt_tokens, answer.told_timings)


def _request(
    asked: Message,
    *,
    sampling: Sampling = _COLD,
    seed: int = 1,
    max_tokens: int = _SHORT,
    structure: Structure | None = None,
) -> ChatRequest:
    return ChatRequest(
        (asked,), sampling, seed, max_tokens, structure=structure, template_values=_NO_THINKING
    )
