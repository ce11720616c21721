"""What the decode loop is asked for: token ids in, text out. Chat is above it."""

from __future__ import annotations

from dataclasses import dataclass, field

from veriloop_tui.core.chat import Sampling


@dataclass(frozen=True, slots=True)
class ThinkingBounds:
    """Where a model's thinking begins and ends, and how long it may be.

    `opened` says that the prompt already holds the `start` marker. After `tokens` tokens of
    thinking the decode loop writes `closing` itself: the rest is left for the answer.
    """

    start: str
    end: str
    tokens: int
    closing: str
    opened: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One completion, or `n` of them, of a prompt's tokens.

    `text` is what the prompt's tokens were made from; `grammar` is GBNF, empty for none; candidate
    i draws with `seed + i`. `lazy_after`: the grammar holds only after this text, empty for at
    once.
    """

    prompt: tuple[int, ...]
    text: str
    sampling: Sampling
    seed: int
    max_tokens: int
    stop: tuple[str, ...] = ()
    n: int = 1
    grammar: str = ""
    lazy_after: str = ""
    thinking: ThinkingBounds | None = field(default=None)
