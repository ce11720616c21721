"""From single measurements to figures, and from two runs to a comparison. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer measured: milliseconds, and tokens.

    `way` is how it was decoded: plain, lookup, head, both; or what else was measured: cold and
    reused prompts, candidates in one batch and one after the other.
    """

    way: str
    prompt: str
    round: int
    prompt_ms: float
    predicted_ms: float
    prompt_tokens: int
    reused_tokens: int
    completion_tokens: int
    drafted_tokens: int
    accepted_tokens: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of several values."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Speed:
    """One way of decoding: tokens/s over rounds, its gain over plain, the share of accepted drafts.

    A round's figure is all its tokens over all its time, so long answers weigh more.
    """

    way: str
    tokens_per_second: Spread
    gain: float
    drafted: int
    accepted: int

    @property
    def acceptance(self) -> float:
        """Accepted over drafted tokens, 0 where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of two runs, the ratio of the second to the first; `clear` if the spreads do
    not overlap."""

    name: str
    before: float
    after: float
    ratio: float
    clear: bool


def speeds(samples: Sequence[Sample]) -> tuple[Speed, ...]:
    """Generation speed by way, in the order in which the ways were first measured."""
    ways = [way for way in dict.fromkeys(s.way for s in samples) if not way.startswith(_OTHER)]
    rates = {way: _rates([s for s in samples if s.way == way]) for way in ways}
    plain = rates.get("plain")
    return tuple(
        Speed(
            way=way,
            tokens_per_second=rate,
            gain=rate.median / plain.median if plain and plain.median else 0.0,
            drafted=sum(s.drafted_tokens for s in samples if s.way == way),
            accepted=sum(s.accepted_tokens for s in samples if s.way == way),
        )
        for way, rate in rates.items()
    )


def prompt_speed(samples: Iterable[Sample]) -> Spread:
    """Evaluated prompt tokens per second over all cold prompts."""
    rates = [
        (s.prompt_tokens - s.reused_tokens) * 1e3 / s.prompt_ms
        for s in samples
        if s.way == "cold" and s.prompt_ms > 0
    ]
    return _spread(rates)


def ratio_of(samples: Sequence[Sample], way: str, to: str, field: str) -> float:
    """The median of a field of one way over that of another; 0 where one was not measured."""
    first = [float(getattr(s, field)) for s in samples if s.way == way]
    second = [float(getattr(s, field)) for s in samples if s.way == to]
    if not first or not second or not statistics.median(second):
        return 0.0
    return statistics.median(first) / statistics.median(second)


def document(settings: Mapping[str, Any], samples: Sequence[Sample]) -> dict[str, Any]:
    """A whole run as JSON; `settings` is everything that two runs must share to be compared."""
    return {
        "format": FORMAT,
        "settings": dict(settings),
        "speeds": [{**asdict(speed), "acceptance": speed.acceptance} for speed in speeds(samples)],
        "prompt_tokens_per_second": asdict(prompt_speed(samples)),
        "first_token_ms": {way: asdict(_spread(_prompt_ms(samples, way))) for way in _PROMPTS},
        "reused_prompt_time": ratio_of(samples, "reused", "cold", "prompt_ms"),
        "candidates_gain": ratio_of(samples, "candidates one by one", "candidates", "predicted_ms"),
        "samples": [asdict(sample) for sample in samples],
    }


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Each figure that both runs have. Raises `ValueError` that names what cannot be compared."""
    if before.get("format") != FORMAT or after.get("format") != FORMAT:
        raise ValueError("it was written by another version of the program")
    old, new = before["settings"], after["settings"]
    unequal = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    if unequal:
        raise ValueError(f"they differ in {', '.join(unequal)}")
    found = [
        _difference("prompt", before["prompt_tokens_per_second"], after["prompt_tokens_per_second"])
    ]
    earlier = {speed["way"]: speed["tokens_per_second"] for speed in before["speeds"]}
    found += [
        _difference(speed["way"], earlier[speed["way"]], speed["tokens_per_second"])
        for speed in after["speeds"]
        if speed["way"] in earlier
    ]
    return tuple(found)


# A long prompt, and the same with a little more at its end.
_PROMPTS: Final = ("cold", "reused")
_OTHER: Final = (*_PROMPTS, "candidates")


def _prompt_ms(samples: Iterable[Sample], way: str) -> list[float]:
    return [sample.prompt_ms for sample in samples if sample.way == way]


def _difference(name: str, before: Mapping[str, float], after: Mapping[str, float]) -> Difference:
    apart = after["low"] > before["high"] or after["high"] < before["low"]
    ratio = after["median"] / before["median"] if before["median"] else 0.0
    return Difference(name, before["median"], after["median"], ratio, apart)


def _rates(samples: Sequence[Sample]) -> Spread:
    rates = []
    for number in sorted({sample.round for sample in samples}):
        of = [sample for sample in samples if sample.round == number]
        ms = sum(sample.predicted_ms for sample in of)
        rates.append(sum(sample.completion_tokens for sample in of) * 1e3 / ms if ms else 0.0)
    return _spread(rates)


def _spread(values: Sequence[float]) -> Spread:
    if not values:
        return Spread(0.0, 0.0, 0.0)
    return Spread(statistics.median(values), min(values), max(values))
