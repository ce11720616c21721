"""How many tokens to draft: by what is accepted and by what a batch costs, both measured. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

Source = Literal["head", "lookup"]
# Guesses at the share of accepted tokens, before any was seen: by source and length of the match.
_PRIORS: Final[dict[tuple[Source, int], float]] = {
    ("head", 0): 0.75,
    ("lookup", 3): 0.4,
    ("lookup", 6): 0.65,
    ("lookup", 12): 0.8,
    ("lookup", 24): 0.9,
}
_LENGTHS: Final = (24, 12, 6, 3)
# The weight of one drafted token against those before it, once enough were seen.
_MEMORY: Final = 0.06
_COST_MEMORY: Final = 0.15
# Below this gain the risk of losing is larger than what there is to win.
_WORTH: Final = 1.04
_FIRST_PROBE: Final = 96
_LAST_PROBE: Final = 1_536
_PROBE_LENGTH: Final = 2
# Evaluations after which the rates are worked out anew.
_REFRESH: Final = 16


@dataclass(frozen=True, slots=True)
class Choice:
    """What to draft next: from where, and how many tokens."""

    source: Source
    bucket: int
    count: int


def bucket(source: Source, match: int) -> int:
    """The class of a guess by the length of its match: like lengths fare alike."""
    if source == "head":
        return 0
    return next((length for length in _LENGTHS if match >= length), _LENGTHS[-1])


class CostCurve:
    """Milliseconds that a batch of n tokens takes, for the n that were seen, and between them."""

    def __init__(self, measured: Iterable[tuple[int, float]] = ()) -> None:
        self._base = dict(measured)
        self._seen: dict[int, float] = {}

    def note(self, count: int, ms: float) -> None:
        """A batch of `count` tokens took `ms`."""
        old = self._seen.get(count)
        # One slow call among many is the machine's doing, and would scare us off for long.
        kept = ms if old is None else old + _COST_MEMORY * (min(ms, 3 * old) - old)
        self._seen[count] = kept

    def at(self, count: int) -> float:
        """What a batch of `count` tokens should take."""
        if (seen := self._seen.get(count)) is not None:
            return seen
        # The context has grown since the curve was measured: shift it to what was seen of late.
        known = {n: ms * self._drift() for n, ms in self._base.items()}
        return _between(known | self._seen, count)

    def _drift(self) -> float:
        one, base = self._seen.get(1), self._base.get(1)
        return one / base if one and base else 1.0


class Pace:
    """Chooses the next draft so that tokens come fastest, and learns from what became of it."""

    def __init__(self, cost: CostCurve, longest: int, *, fixed: bool = False) -> None:
        """`longest` bounds a draft; a `fixed` pace always drafts that many, whatever it costs."""
        self.cost = cost
        self.longest = longest
        self._fixed = fixed
        self._draft_ms = 0.0
        self._accepted = dict(_PRIORS)
        self._drafted = dict.fromkeys(_PRIORS, 0)
        self._plain = 0
        self._resting = False
        self._probe_after = _FIRST_PROBE
        self._rated: dict[tuple[Source, int], tuple[float, int]] = {}
        self._age = 0

    def note_draft(self, count: int, ms: float) -> None:
        """The head took `ms` to draft `count` tokens."""
        each = ms / count
        old = self._draft_ms or each
        self._draft_ms = old + _COST_MEMORY * (min(each, 3 * old) - old)

    def note_batch(self, count: int, ms: float) -> None:
        """The target took `ms` for a batch of `count` tokens."""
        self.cost.note(count, ms)
        self._plain = self._plain + 1 if count == 1 else 0
        self._age += 1

    def note_outcome(self, choice: Choice, accepted: int, drafted: int) -> None:
        """Of `drafted` tokens the first `accepted` were right."""
        key = (choice.source, choice.bucket)
        self._rated.pop(key, None)
        for right in (*[1.0] * accepted, *([0.0] if accepted < drafted else [])):
            self._drafted[key] += 1
            weight = max(_MEMORY, 1 / (self._drafted[key] + 3))
            self._accepted[key] += weight * (right - self._accepted[key])

    @property
    def resting(self) -> bool:
        """Whether the last drafts on offer would not have paid, by what was accepted so far."""
        return self._resting

    def hopeless(self) -> bool:
        """Whether not even guesses that are always right would pay, as the batches cost."""
        best = max(self._gain(1.0, count, 0.0) for count in range(1, self.longest + 1))
        return not self._fixed and best < _WORTH

    def choose(self, offers: Iterable[tuple[Source, int]], room: int) -> Choice | None:
        """The best of what is on offer: each a source and its match's length. `None`: nothing pays.

        At most `room` tokens can be used.
        """
        most = min(self.longest, room)
        if most < 1:
            return None
        found: Choice | None = None
        best = 0.0
        for source, match in offers:
            key = (source, bucket(source, match))
            if self._fixed:
                return Choice(*key, most)
            gain, count = self._best(key)
            if gain > best:
                best, found = gain, Choice(*key, min(count, most))
        self._resting = found is not None and best < _WORTH
        if not self._resting:
            self._probe_after = _FIRST_PROBE
            return found
        assert found is not None
        if self._plain < self._probe_after or self.hopeless():
            return None
        self._plain = 0
        self._probe_after = min(2 * self._probe_after, _LAST_PROBE)
        return Choice(found.source, found.bucket, min(most, _PROBE_LENGTH))

    def _best(self, key: tuple[Source, int]) -> tuple[float, int]:
        """The largest gain and its draft length; looked up, since it is asked for each token."""
        if self._age >= _REFRESH:
            self._age = 0
            self._rated.clear()
        rated = self._rated.get(key)
        if rated is None:
            draft_ms = self._draft_ms if key[0] == "head" else 0.0
            share = self._accepted[key]
            rated = self._rated[key] = max(
                (self._gain(share, count, draft_ms), count) for count in range(1, self.longest + 1)
            )
        return rated

    def _gain(self, share: float, count: int, draft_ms: float) -> float:
        """Tokens per time against drafting nothing, if each token is right with `share`.

        A draft of k tokens yields 1 + p + p² + … + pᵏ tokens (Leviathan et al. 2023, eq. 1).
        """
        tokens = sum(share**i for i in range(count + 1))
        return tokens * self.cost.at(1) / (self.cost.at(count + 1) + count * draft_ms)


def _between(known: dict[int, float], count: int) -> float:
    """Linear between the neighbours, in proportion beyond the last."""
    if not known:
        return float(count)
    below = max((n for n in known if n <= count), default=None)
    above = min((n for n in known if n >= count), default=None)
    if below is None or above is None:
        nearest = below if below is not None else above
        assert nearest is not None
        return known[nearest] * count / nearest
    if below == above:
        return known[below]
    share = (count - below) / (above - below)
    return known[below] + share * (known[above] - known[below])
