"""A prompt, ready to be sent, with what its answer may be read against."""

from __future__ import annotations

import re
from dataclasses import dataclass

from veriloop_tui.core.chat import Message
from veriloop_tui.proposer.form import Form

CHARS_PER_TOKEN = 2.5
_RESERVED_TOKENS = 96


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is asked.

    `prefill` is the start of the answer, given to the model as its own words; empty for none.
    `named` and `qualname` are the file and definition that the prompt named, `shown_whole` the
    files it showed in full. `max_tokens` bounds the answer.
    """

    form: Form
    target: str
    messages: tuple[Message, ...]
    max_tokens: int
    prefill: str = ""
    stop: tuple[str, ...] = ()
    named: str = ""
    qualname: str = ""
    shown_whole: frozenset[str] = frozenset()


def prompt_chars(n_ctx: int, max_tokens: int) -> int:
    """Characters that a prompt may have, so that prompt and answer fit the context.

    Reckoned with few characters per token, as code has; the engine counts exactly.
    """
    return max(0, int((n_ctx - max_tokens - _RESERVED_TOKENS) * CHARS_PER_TOKEN))


def fenced(text: str, info: str = "") -> str:
    """`text` in a fence that nothing in it can close."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    mark = "`" * (longest + 1)
    return f"{mark}{info}\n{text.rstrip(chr(10))}\n{mark}"
