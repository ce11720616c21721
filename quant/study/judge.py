"""Losses of single tokens made into what a report tells of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quant.inspecting.inspect import inspect
from quant.inspecting.name import broken_promises
from quant.losses.percentiles import DELTA_P_LEVELS, KLD_LEVELS, percentiles
from quant.losses.statistics import (
    Scores,
    mean,
    paired,
    perplexities,
    root_mean_square,
    share,
)
from quant.report.data import Average, AverageRow, Comparison, Estimate, Histogram, Pair, QuantLoss
from quant.study.contest import Competitor
from quant.study.sidecar import Speeds

_BINS = 80


@dataclass(frozen=True, slots=True)
class Heard:
    """What was measured of one quant."""

    competitor: Competitor
    scores: Scores
    speeds: Speeds | None


def loss(heard: Heard, base: Competitor) -> QuantLoss:
    """All numbers of one quant."""
    scores, model = heard.scores, heard.competitor.files
    sizes, ppl = inspect(model, base.files), perplexities(scores)
    counts, edges = np.histogram(scores.delta_p, bins=_BINS, range=(-1, 1))
    read, written = _medians(heard.speeds)
    return QuantLoss(
        key=heard.competitor.key,
        name=model.name,
        file_size=sizes.file_size,
        bpw_all=sizes.sizes.bpw,
        bpw_trunk=sizes.bpw_trunk,
        bpw_body=sizes.sizes.bpw_body,
        ppl=ppl.quant,
        base_ppl=ppl.base,
        ppl_ratio=ppl.ratio,
        ppl_difference=ppl.difference,
        ln_ratio=ppl.ln_ratio,
        correlation=ppl.correlation,
        kld=mean(scores.kld),
        kld_percentiles=percentiles(scores.kld, KLD_LEVELS),
        delta_p=mean(scores.delta_p),
        delta_p_percentiles=percentiles(scores.delta_p, DELTA_P_LEVELS),
        rms_delta_p=root_mean_square(scores.delta_p),
        same_top=share(scores.same_top),
        kld_by_position=tuple(map(float, scores.kld.mean(axis=0, dtype=np.float64))),
        delta_p_histogram=Histogram(tuple(map(float, edges)), tuple(map(int, counts))),
        prompt_speed=read,
        generation_speed=written,
        notices=broken_promises(sizes),
    )


def pairs(heard: Sequence[Heard]) -> tuple[Pair, ...]:
    """Each two quants with the difference of their mean KLD."""
    found = []
    for at, one in enumerate(heard):
        for other in heard[at + 1 :]:
            apart = paired(one.scores.kld, other.scores.kld)
            keys = one.competitor.key, other.competitor.key
            found.append(Pair(*keys, apart.difference, apart.half))
    return tuple(found)


def average(comparisons: Sequence[Comparison]) -> Average | None:
    """The mean over corpora, each counting the same; `None` for fewer than two of them.

    Only quants that were measured on all are in it. Their errors are independent, so the squares
    add up.
    """
    if len(comparisons) < 2:
        return None
    rows: list[Mapping[str, QuantLoss]] = [
        {quant.key: quant for quant in one.quants} for one in comparisons
    ]
    common = [key for key in rows[0] if all(key in row for row in rows)]
    return Average(
        corpora=tuple(one.corpus for one in comparisons),
        settings=tuple(
            pair for pair in comparisons[0].settings if all(pair in c.settings for c in comparisons)
        ),
        quants=tuple(_average([row[key] for row in rows]) for key in common),
    )


def _average(rows: Sequence[QuantLoss]) -> AverageRow:
    return AverageRow(
        key=rows[0].key,
        name=rows[0].name,
        file_size=rows[0].file_size,
        kld=_together([row.kld for row in rows]),
        ln_ratio=_together([row.ln_ratio for row in rows]),
        rms_delta_p=_together([row.rms_delta_p for row in rows]),
        same_top=_together([row.same_top for row in rows]),
    )


def _together(estimates: Sequence[Estimate]) -> Estimate:
    count = len(estimates)
    clustered = [one.clustered for one in estimates if one.clustered is not None]
    return Estimate(
        sum(one.value for one in estimates) / count,
        math.hypot(*(one.error or 0.0 for one in estimates)) / count,
        math.hypot(*clustered) / count if len(clustered) == count else None,
    )


def _medians(speeds: Speeds | None) -> tuple[float | None, float | None]:
    if speeds is None:
        return None, None
    return float(np.median(speeds.read)), float(np.median(speeds.written))
