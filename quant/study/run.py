"""A study from beginning to end: what is to be measured, measured, and told of."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from quant.report.data import Comparison, Report
from quant.running.garage import Garage
from quant.running.layout import Layout
from quant.running.logits_store import remove
from quant.running.measure import Ways, measure
from quant.running.shared import SharedMemory
from quant.study.contest import open_contest
from quant.study.leg import open_leg
from quant.study.progress import Clock, Progress
from quant.study.study import Study, places
from quant.study.surroundings import Surroundings
from quant.study.trials import Trials
from quant.study.verdict import averages, comparisons
from quant.study.watcher import Watcher
from veriloop_tui.core.ports import Cancel


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a place will take, told before it begins: bytes, and seconds if the speeds are known."""

    title: str
    layout: Layout
    chunks: int
    seconds: float | None


Told = Progress | Preflight


def run_study(
    study: Study, around: Surroundings, watch: Callable[[Told], None], cancel: Cancel
) -> Report:
    """Measure what is not yet measured, and report all. `watch` is called from several threads.

    What was measured is kept whenever it stops. Raises what `open_contest` and `measure` do,
    `MemoryTooSmall`, `DiskTooSmall`, `RecordInvalid`.
    """
    contest = open_contest(study, cancel)
    with ExitStack() as stack:
        shared = stack.enter_context(SharedMemory())
        garage = stack.enter_context(Garage(shared.descriptor, study.gpu_layers, cancel))
        legs = [
            open_leg(study, contest, place, around, stack)
            for place in places(study, around.threads)
        ]
        trials = Trials(around, garage, wanted=study.speeds)
        clock = Clock(sum(leg.passes for leg in legs), sum(leg.done for leg in legs), around.now())
        found: list[Comparison] = []
        for leg in legs:
            speeds = trials.of(leg)
            title = f"{leg.corpus}, n_ctx {leg.field.ground.shape.n_ctx}"
            seconds = trials.seconds(leg, speeds)
            watch(Preflight(title, leg.layout, leg.field.ground.chunks, seconds))
            watcher = Watcher(title, leg.field, clock, around.now, watch)
            ways = Ways(leg.layout, garage, shared, leg.logits, watcher.told, cancel)
            measure(leg.field, ways)
            if leg.logits != study.logits:
                remove(leg.logits)
            found += comparisons(contest, leg, speeds)
        return Report(
            title=f"Quants of {contest.base.name}",
            created=around.created,
            program=around.program,
            comparisons=tuple(found),
            averages=tuple(averages(found)),
            notices=contest.notices,
        )
