"""The tokens that answers were really made of, so that the next prompt finds them evaluated.

Tokenising a model's answer again often gives other tokens than it drew, and every token from the
first difference on would have to be evaluated once more. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from veriloop_tui.engine.job import Job

# More characters than any special token has.
_LOOK_AHEAD: Final = 200
_MAX_TRIES: Final = 32


@dataclass(frozen=True, slots=True)
class Transcript:
    """A text, the tokens it was evaluated as, and the borders between tokens that are known.

    A border is a pair: so many characters are so many tokens.
    """

    text: str
    tokens: tuple[int, ...]
    borders: tuple[tuple[int, int], ...]

    def then(self, job: Job, answer: Iterable[tuple[int, bytes]]) -> Transcript:
        """After `job`, with the tokens that were evaluated and the bytes of each.

        It ends before a token that has no bytes, or bytes that are no UTF-8; there is no border
        inside a character. What is known of borders in the part that `job` shares with this one
        stays known.
        """
        if not job.text:
            # Tokens that stand for no text would go before any other one.
            return NOTHING
        chars, same = _shared(self.text, job.text), _shared(self.tokens, job.prompt)
        borders = [(c, t) for c, t in self.borders if c <= chars and t <= same]
        text, tokens = job.text, [*job.prompt]
        borders.append((len(text), len(tokens)))
        held, ids = b"", list[int]()
        for token, piece in answer:
            if not piece:
                break
            held += piece
            ids.append(token)
            try:
                text += held.decode("utf-8")
            except UnicodeDecodeError as problem:
                if problem.end < len(held) or len(held) - problem.start > 3:
                    break
                continue
            tokens += ids
            borders.append((len(text), len(tokens)))
            held, ids = b"", []
        return Transcript(text, tuple(tokens), tuple(borders))

    def respell(
        self, job: Job, parse: Callable[[str], list[int]], is_special: Callable[[int], bool]
    ) -> Job:
        """`job` with the tokens of this transcript for the text that both begin with.

        The rest must begin with a special token: no other border is sure to be one between
        tokens. Otherwise `job` as it is.
        """
        chars = _shared(self.text, job.text)
        known = [border for border in self.borders if border[0] <= chars]
        for end, count in known[: -_MAX_TRIES - 1 : -1]:
            ahead = parse(job.text[end : end + _LOOK_AHEAD])
            if ahead and is_special(ahead[0]):
                return replace(job, prompt=(*self.tokens[:count], *parse(job.text[end:])))
        return job


NOTHING = Transcript("", (), ())


def _shared(mine: Sequence[object], wanted: Sequence[object]) -> int:
    """The length of what both begin with."""
    end = min(len(mine), len(wanted))
    if mine[:end] == wanted[:end]:
        return end
    low, high = 0, end
    while low + 1 < high:
        middle = (low + high) // 2
        if mine[:middle] == wanted[:middle]:
            low = middle
        else:
            high = middle
    return low
