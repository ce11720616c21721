"""Prompt lookup: what followed the last tokens when they stood in the context before. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

NGRAM: Final = 3
_PLACES: Final = 8
_LONGEST: Final = 32


@dataclass(frozen=True, slots=True)
class Match:
    """Tokens that may come next, and how many tokens before them are the same (at most 32)."""

    tokens: tuple[int, ...]
    length: int


class Lookup:
    """An index of a growing sequence of tokens by each run of three of them.

    Memory and time are proportional to the tokens, and no logits are needed.
    """

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self._tokens: list[int] = []
        self._places: dict[tuple[int, int, int], list[int]] = {}
        self.extend(tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """Append what the sequence has grown by."""
        mine, places = self._tokens, self._places
        start = len(mine)
        mine.extend(tokens)
        # A run is entered once a token follows it: the last one must not find itself.
        for end in range(max(start, NGRAM), len(mine)):
            key = (mine[end - 3], mine[end - 2], mine[end - 1])
            seen = places.get(key)
            if seen is None:
                places[key] = [end]
            else:
                seen.append(end)
                if len(seen) > _PLACES:
                    del seen[0]

    def propose(self, count: int) -> Match | None:
        """Up to `count` tokens that followed the longest like run; the latest of equal ones."""
        mine = self._tokens
        if len(mine) < NGRAM or count < 1:
            return None
        best, at = 0, 0
        for place in reversed(self._places.get((mine[-3], mine[-2], mine[-1]), ())):
            length = self._like(place)
            if length > best:
                best, at = length, place
        if not best:
            return None
        # What repeats up to the very end goes on repeating.
        period = len(mine) - at
        return Match(tuple(mine[at + i % period] for i in range(count)), best)

    def _like(self, place: int) -> int:
        mine, end = self._tokens, len(self._tokens)
        length = NGRAM
        while (
            length < _LONGEST
            and length < place
            and mine[place - length - 1] == mine[end - length - 1]
        ):
            length += 1
        return length
