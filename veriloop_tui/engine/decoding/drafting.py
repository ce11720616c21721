"""The guesses of one answer: the head's and the prompt's own, whichever pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from veriloop_tui.engine.decoding.head import Head
from veriloop_tui.engine.decoding.lookup import Lookup
from veriloop_tui.engine.decoding.memory import Memory
from veriloop_tui.engine.decoding.pace import Choice, Pace, Source


class Drafting:
    """Drafts for sequence 0 of a memory, and keeps head and index in step with it."""

    def __init__(self, head: Head | None, pace: Pace | None, lookup: bool, memory: Memory) -> None:
        self._head, self._pace, self._memory = head, pace, memory
        wanted = lookup and pace is not None and not pace.hopeless()
        self._index = Lookup(memory.tokens) if wanted else None

    def draft(
        self, last: int, room: int, clock: Callable[[], float]
    ) -> tuple[list[int], Choice | None]:
        """Tokens that may follow `last`, which is drawn but not evaluated; none if that pays more.

        Raises `DraftRefused`.
        """
        if self._pace is None:
            return [], None
        offers: list[tuple[Source, int]] = []
        match = None
        if self._index is not None:
            self._index.extend((last,))
            match = self._index.propose(self._pace.longest)
            if match is not None:
                offers.append(("lookup", match.length))
        if self._head is not None:
            offers.append(("head", 0))
        choice = self._pace.choose(offers, room)
        if choice is None:
            return [], None
        if choice.source == "lookup":
            assert match is not None
            return list(match.tokens[: choice.count]), choice
        assert self._head is not None
        begun = clock()
        drafted = self._head.draft(last, choice.count)
        self._pace.note_draft(len(drafted), (clock() - begun) * 1e3)
        return drafted, choice

    def verified(
        self, evaluated: Sequence[int], kept: int, choice: Choice | None, ms: float
    ) -> None:
        """Of the evaluated tokens the first `kept` stay; the rest is about to be taken back."""
        start = len(self._memory) - len(evaluated)
        if self._head is not None:
            self._head.follow(start, evaluated[:kept], self._memory.hidden(kept))
        if self._index is not None:
            # The first one may have been entered when it was drawn.
            self._index.extend(evaluated[len(self._index) - start : kept])
        if self._pace is None:
            return
        self._pace.note_batch(len(evaluated), ms)
        if choice is not None:
            self._pace.note_outcome(choice, kept - 1, len(evaluated) - 1)
