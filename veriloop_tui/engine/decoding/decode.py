"""Completions: prefill, then draw, draft and verify until each candidate has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from veriloop_tui.core.chat import (
    CandidateEnded,
    ChatEvent,
    ChatFinished,
    FinishReason,
    TextDelta,
    Timings,
    Usage,
)
from veriloop_tui.engine.decoding.candidate import Candidate
from veriloop_tui.engine.decoding.drafting import Drafting
from veriloop_tui.engine.decoding.head import Head
from veriloop_tui.engine.decoding.llama import Vocabulary
from veriloop_tui.engine.decoding.memory import Cancelled, Memory
from veriloop_tui.engine.decoding.pace import Pace
from veriloop_tui.engine.decoding.prefill import prefill
from veriloop_tui.engine.decoding.sampler import Sampler
from veriloop_tui.engine.job import Job
from veriloop_tui.errors import ContextTooLong, DraftRefused, EngineRefused


def check_fits(prompt: Sequence[int], n_ctx: int) -> None:
    """Refuse a prompt that leaves no room for an answer, before anything is evaluated.

    Raises `ContextTooLong`, and `EngineRefused` for a prompt without tokens.
    """
    if not prompt:
        raise EngineRefused(400, "the prompt is empty")
    if len(prompt) >= n_ctx:
        raise ContextTooLong(len(prompt), n_ctx)


@dataclass(slots=True)
class Decoder:
    """A memory with what can speed it up: a draft head, prompt lookup, and a pace for both.

    `pace` is `None` where nothing is drafted; `notices` are sentences on what was switched off.
    """

    memory: Memory
    vocabulary: Vocabulary
    head: Head | None = None
    pace: Pace | None = None
    lookup: bool = False
    clock: Callable[[], float] = time.perf_counter
    notices: list[str] = field(default_factory=list)

    def run(self, job: Job, cancelled: Cancelled) -> Iterator[ChatEvent]:
        """Text deltas, a `CandidateEnded` for each of several candidates, one `ChatFinished`.

        Raises `ContextTooLong`, `EngineRefused`.
        """
        check_fits(job.prompt, self.memory.n_ctx)
        if cancelled():
            # Nobody waits any more: leave the memory to the request that comes next.
            yield ChatFinished("cancelled", Usage(len(job.prompt), 0, 0), Timings(0.0, 0.0))
            return
        run = _Run(self, job, cancelled)
        try:
            yield from run.events()
        except EngineRefused:
            self.forget()
            raise
        except DraftRefused as refused:
            # A head that fails has told nothing wrong, but the memories are no longer in step.
            self.drop_head(refused)
            raise EngineRefused(503, f"{refused} Ask again.") from refused

    def forget(self) -> None:
        """Empty the memory, and the head's with it."""
        self.memory.clear()
        if self.head is not None:
            self.head.cut(0)

    def drop_head(self, refused: DraftRefused) -> None:
        """Go on without the head, and say so."""
        self.forget()
        if self.head is not None:
            self.head.close()
            self.head = None
        self.notices.append(str(refused))

    def close(self) -> None:
        """Give the native memory back."""
        if self.head is not None:
            self.head.close()
        self.memory.close()


class _Run:
    """One job on its way."""

    def __init__(self, decoder: Decoder, job: Job, cancelled: Cancelled) -> None:
        self._decoder, self._job, self._cancelled = decoder, job, cancelled
        self._memory = decoder.memory
        self._made = self._drafted = self._accepted = 0
        self._prompt_ms = 0.0
        self._reused: int | None = None
        self._reason: FinishReason = "cancelled"

    def events(self) -> Iterator[ChatEvent]:
        """All events of the job, in waves of as many candidates as the memory has sequences."""
        clock, begun = self._decoder.clock, self._decoder.clock()
        job, width = self._job, self._memory.sequences
        for first in range(0, job.n, width):
            wave = range(first, min(first + width, job.n))
            before = clock()
            prefilled = prefill(self._memory, self._decoder.head, job.prompt, self._cancelled)
            self._prompt_ms += (clock() - before) * 1e3
            if self._reused is None:
                self._reused = prefilled.reused
            with ExitStack() as stack:
                candidates = [self._candidate(index, len(wave), stack) for index in wave]
                if prefilled.whole:
                    if len(candidates) == 1:
                        yield from self._alone(candidates[0])
                    else:
                        yield from self._together(candidates)
                yield from self._ends(candidates)
        spent = Timings(self._prompt_ms, (clock() - begun) * 1e3 - self._prompt_ms)
        usage = Usage(len(job.prompt), self._made, self._reused or 0, self._drafted, self._accepted)
        yield ChatFinished(self._reason, usage, spent)

    def _candidate(self, index: int, in_wave: int, stack: ExitStack) -> Candidate:
        job, vocabulary = self._job, self._decoder.vocabulary
        sampler = stack.enter_context(Sampler(job.sampling, job.seed + index, vocabulary))
        # The last token needs no place in the context: it is drawn, not evaluated.
        free = (self._memory.n_ctx - len(job.prompt)) // in_wave + 1
        return Candidate(index, job, sampler, vocabulary, min(job.max_tokens, free))

    def _ends(self, candidates: Sequence[Candidate]) -> Iterator[ChatEvent]:
        for candidate in candidates:
            rest = candidate.finish()
            if rest:
                yield TextDelta(rest, candidate.index)
            reason = candidate.ended or "cancelled"
            if candidate.index == 0:
                self._reason = reason
            if self._job.n > 1:
                yield CandidateEnded(candidate.index, reason)
            self._made += candidate.made

    def _alone(self, candidate: Candidate) -> Iterator[ChatEvent]:
        """One candidate, its tokens drafted ahead where that pays."""
        memory = self._memory
        drafting = Drafting(self._decoder.head, self._decoder.pace, self._decoder.lookup, memory)
        clock = self._decoder.clock
        token = candidate.draw(memory, -1)
        if text := candidate.take(token):
            yield TextDelta(text, candidate.index)
        while candidate.ended is None:
            if self._cancelled():
                return
            left = candidate.room - candidate.made - 1
            room = min(left, memory.n_ctx - len(memory) - 1)
            if candidate.forced:
                draft = list(candidate.forced)[: min(room, memory.rollback)]
                choice = None
            else:
                draft, choice = drafting.draft(token, room, clock)
            begun = clock()
            evaluated = (token, *draft)
            memory.advance(evaluated)
            text, kept = "", 1
            for row, guess in enumerate((*draft, None)):
                token = candidate.draw(memory, row)
                text += candidate.take(token)
                if candidate.ended is not None or token != guess:
                    break
                kept += 1
            drafting.verified(evaluated, kept, choice, (clock() - begun) * 1e3)
            memory.take_back(len(evaluated) - kept)
            if choice is not None:
                self._drafted += len(draft)
                self._accepted += kept - 1
            if text:
                yield TextDelta(text, candidate.index)

    def _together(self, candidates: Sequence[Candidate]) -> Iterator[ChatEvent]:
        """Several candidates, a token of each in one batch."""
        memory = self._memory
        memory.fork(len(candidates))
        # All draw their first token from the same row.
        rows = dict.fromkeys(range(len(candidates)), -1)
        while not self._cancelled():
            tokens: list[tuple[int, int]] = []
            for sequence, row in rows.items():
                candidate = candidates[sequence]
                token = candidate.draw(memory, row)
                if text := candidate.take(token):
                    yield TextDelta(text, candidate.index)
                if candidate.ended is None:
                    tokens.append((sequence, token))
                else:
                    memory.end(sequence)
            if not tokens:
                return
            memory.advance_each(tokens)
            rows = {sequence: row for row, (sequence, _) in enumerate(tokens)}
