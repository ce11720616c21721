"""What was measured, as the comparisons of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from quant.losses.statistics import mean, perplexities
from quant.report.data import Average, Comparison, Stopped
from quant.study.contest import Contest
from quant.study.judge import Heard, average, loss, pairs
from quant.study.leg import Leg
from quant.study.sidecar import Ground, Speeds
from quant.study.study import Variant
from veriloop_tui.errors import UsageError


def comparisons(
    contest: Contest, leg: Leg, speeds: Sequence[Speeds | None]
) -> Iterator[Comparison]:
    """One for each variant: quants computed in different ways are not ranked together."""
    numbered = list(enumerate(leg.heard))
    for variant, members in groupby(numbered, key=lambda pair: pair[1][1]):
        yield _comparison(contest, leg, variant, [number for number, _ in members], speeds)


def _comparison(
    contest: Contest,
    leg: Leg,
    variant: Variant,
    numbers: Sequence[int],
    speeds: Sequence[Speeds | None],
) -> Comparison:
    ground, field = leg.field.ground, leg.field
    heard, stopped = [], []
    for number in numbers:
        competitor, _ = leg.heard[number]
        if (problem := field.problems.get(number)) is not None:
            size = competitor.files.facts.file_size
            stopped.append(Stopped(competitor.name, size, problem))
        elif (scores := field.quants[number].record.scores()) is not None:
            heard.append(Heard(competitor, scores, speeds[number]))
    floor = field.base.record.scores()
    told = floor or (heard[0].scores if heard else None)
    if told is None:
        raise UsageError("Nothing was measured: no quant could be run, for the reasons above.")
    return Comparison(
        corpus=leg.corpus,
        base=contest.base.name,
        base_key=contest.base.key,
        base_size=contest.base.files.facts.file_size,
        base_ppl=perplexities(told).quant if floor is not None else perplexities(told).base,
        tokens=told.nll.size,
        chunks=ground.chunks,
        quants=tuple(loss(one, contest.base) for one in heard),
        pairs=pairs(heard),
        floor=mean(floor.kld).value if floor is not None else None,
        stopped=tuple(stopped),
        settings=_settings(ground, variant),
    )


def _settings(ground: Ground, variant: Variant) -> tuple[tuple[str, str], ...]:
    shape = ground.shape
    return (
        ("n_ctx", str(shape.n_ctx)),
        ("n_batch", str(shape.n_batch)),
        ("n_ubatch", str(shape.n_ubatch)),
        ("threads", str(ground.threads)),
        ("KV types", f"{variant.type_k}/{variant.type_v}"),
        ("flash attention", variant.flash_attention),
        ("BOS", "none" if ground.bos is None else str(ground.bos)),
        ("special tokens parsed", "yes" if ground.parse_special else "no"),
        ("floor", f"-{ground.floor:.0f}"),
        ("corpus sha256", ground.text[:16]),
        ("base sha256", ground.base[:16]),
        ("build", ground.backend.build),
        ("devices", ", ".join(ground.backend.devices)),
    )


_OWN: Final = frozenset({"corpus sha256", "special tokens parsed"})


def averages(comparisons: Sequence[Comparison]) -> Iterator[Average]:
    """One for each group of comparisons that differ in nothing but the corpus."""
    groups: dict[tuple[tuple[str, str], ...], list[Comparison]] = {}
    for one in comparisons:
        shared = tuple(pair for pair in one.settings if pair[0] not in _OWN)
        groups.setdefault(shared, []).append(one)
    for group in groups.values():
        if (found := average(group)) is not None:
            yield found
