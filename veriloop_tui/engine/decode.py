"""One completion: reuse, prefill, sample, stop. Yields the answer as it grows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from veriloop_tui.core.chat import (
    ChatEvent,
    ChatFinished,
    ChatRequest,
    FinishReason,
    TextDelta,
    Timings,
    Usage,
)
from veriloop_tui.engine.llama import Cancelled, Memory, Sampler, Vocabulary
from veriloop_tui.engine.stops import StopScanner
from veriloop_tui.errors import ContextTooLong, EngineRefused


def check_fits(prompt: Sequence[int], n_ctx: int) -> None:
    """Refuse a prompt that leaves no room for an answer, before anything is evaluated.

    Raises `ContextTooLong`, and `EngineRefused` for a prompt without tokens.
    """
    if not prompt:
        raise EngineRefused(400, "the prompt is empty")
    if len(prompt) >= n_ctx:
        raise ContextTooLong(len(prompt), n_ctx)


def generate(
    memory: Memory,
    vocabulary: Vocabulary,
    prompt: Sequence[int],
    request: ChatRequest,
    cancelled: Cancelled,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[ChatEvent]:
    """Text deltas, then one `ChatFinished`. `prompt` is what `request` was rendered to.

    Raises `ContextTooLong`, `EngineRefused`.
    """
    check_fits(prompt, memory.n_ctx)
    if cancelled():
        # Nobody waits any more: leave the memory to the request that comes next.
        yield ChatFinished("cancelled", Usage(len(prompt), 0, 0), Timings(0.0, 0.0))
        return
    begun = clock()
    reused = memory.keep(prompt)
    ready = memory.evaluate(prompt[reused:], cancelled)
    prefilled = clock()
    scanner = StopScanner(request.stop)
    made = 0
    reason: FinishReason = "length" if ready else "cancelled"
    with Sampler(request.sampling, request.seed, vocabulary.size) as sampler:
        if sampler.window:
            for token in prompt[-sampler.window :]:
                sampler.accept(token)
        # The last token needs no place in the context: it is sampled, not evaluated.
        room = min(request.max_tokens, memory.n_ctx - len(prompt) + 1) if ready else 0
        while made < room:
            if cancelled():
                reason = "cancelled"
                break
            token = sampler.sample(memory)
            made += 1
            if vocabulary.ends(token):
                reason = "stop"
                break
            text = scanner.push(vocabulary.piece(token))
            if text:
                yield TextDelta(text)
            if scanner.stopped:
                reason = "stop"
                break
            if made < room:
                memory.advance(token)
    rest = scanner.finish()
    if rest:
        yield TextDelta(rest)
    usage = Usage(prompt_tokens=len(prompt), completion_tokens=made, reused_tokens=reused)
    spent = Timings((prefilled - begun) * 1e3, (clock() - prefilled) * 1e3)
    yield ChatFinished(reason, usage, spent)
