"""One answer in the making: what is drawn next, what text it gives, and when it ends."""

from __future__ import annotations

from collections import deque

from veriloop_tui.core.chat import FinishReason
from veriloop_tui.engine.decoding.llama import Vocabulary
from veriloop_tui.engine.decoding.sampler import Logits, Sampler
from veriloop_tui.engine.decoding.stops import Seen, StopScanner
from veriloop_tui.engine.job import Job


class Candidate:
    """Takes tokens one by one, drawn from a sampler of its own or forced by a bound on thinking."""

    def __init__(
        self, index: int, job: Job, sampler: Sampler, vocabulary: Vocabulary, room: int
    ) -> None:
        """`room` bounds the tokens. Raises `EngineRefused` for a grammar that is not valid."""
        self.index = index
        self.room = room
        self.made = 0
        self.ended: FinishReason | None = None if room > 0 else "length"
        self.forced: deque[int] = deque()
        self._sampler, self._vocabulary, self._job = sampler, vocabulary, job
        self._scanner = StopScanner(job.stop)
        self._thinking = job.thinking is not None and job.thinking.opened
        self._thought = 0
        # What begins the answer, or follows thinking: only there can thinking begin.
        self._begun: bytes | None = b""
        self._end = Seen(job.thinking.end if job.thinking else "")
        self._free = Seen(job.lazy_after)
        self._waiting = bool(job.grammar and job.lazy_after)
        if job.grammar and not job.lazy_after:
            sampler.constrain(job.grammar)
        if sampler.window:
            for token in job.prompt[-sampler.window :]:
                sampler.accept(token)

    def draw(self, rows: Logits, row: int) -> int:
        """The next token, given the logits after the last one. Raises `EngineRefused`."""
        if self.forced:
            token = self.forced.popleft()
            self._sampler.accept(token)
            return token
        return self._sampler.sample(rows, row)

    def take(self, token: int) -> str:
        """Count the token that was drawn; the text that is certain by now."""
        self.made += 1
        if self._vocabulary.ends(token):
            self.ended = "stop"
            return ""
        piece = self._vocabulary.piece(token)
        if self._job.thinking is not None or self._waiting:
            self._watch(piece)
        text = self._scanner.push(piece)
        if self._scanner.stopped:
            self.ended = "stop"
        elif self.made >= self.room:
            self.ended = "length"
        return text

    def finish(self) -> str:
        """The text that was held back, once the answer is over."""
        return self._scanner.finish()

    def _watch(self, piece: bytes) -> None:
        bounds = self._job.thinking
        if bounds is not None:
            if not self._thinking:
                self._thinking = self._opens(piece, bounds.start.encode())
            elif self._end.push(piece):
                self._thinking, self._begun = False, b""
            else:
                self._thought += 1
                if self._thought == bounds.tokens:
                    self.forced.extend(self._vocabulary.parse(bounds.closing))
        if self._waiting and self._free.push(piece):
            self._waiting = False
            self._sampler.constrain(self._job.grammar)

    def _opens(self, piece: bytes, marker: bytes) -> bool:
        """Whether `piece` completes the marker that begins thinking."""
        if self._begun is None:
            return False
        begun = (self._begun + piece).lstrip()
        if begun.startswith(marker):
            self._begun = None
            return True
        self._begun = begun if marker.startswith(begun) else None
        return False
