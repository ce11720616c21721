"""Getting a prompt into the memory: what is there already stays, the rest is evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veriloop_tui.engine.decoding.batch import N_BATCH
from veriloop_tui.engine.decoding.head import Head
from veriloop_tui.engine.decoding.memory import Cancelled, Memory

# A recurrent memory can only come back to where it was remembered.
_CHECKPOINT_EVERY = 4 * N_BATCH


@dataclass(frozen=True, slots=True)
class Prefilled:
    """How much of a prompt was reused, and whether the rest was evaluated or given up."""

    reused: int
    whole: bool


def prefill(
    memory: Memory, head: Head | None, prompt: Sequence[int], cancelled: Cancelled
) -> Prefilled:
    """Make sequence 0 hold exactly `prompt`, with the logits of its last token.

    Raises `EngineRefused`, `DraftRefused`.
    """
    shared = memory.shared(prompt)
    reused = memory.keep(prompt)
    if head is not None:
        head.cut(reused, memory.carried(reused))
    marks = sorted(_marks(memory, shared, len(prompt)))
    at = reused
    while at < len(prompt):
        end = next((mark for mark in marks if mark > at), len(prompt))
        part = prompt[at : min(at + N_BATCH, end)]
        if not memory.prefill(part, cancelled):
            if head is not None:
                head.cut(len(memory), memory.carried(len(memory)))
            return Prefilled(reused, False)
        if head is not None:
            head.follow(at, part, memory.hidden(len(part)))
            head.catch_up()
        at += len(part)
        if at in marks:
            memory.checkpoint()
    return Prefilled(reused, True)


def _marks(memory: Memory, shared: int, length: int) -> set[int]:
    """Where to remember the state: where two prompts parted, before the end, and now and then.

    Before the last token, since the same prompt once more needs that one's logits again.
    """
    if not memory.recurrent:
        return set()
    return {shared, length - 1, *range(_CHECKPOINT_EVERY, length, _CHECKPOINT_EVERY)} - {0}
