"""Does the lost KLD cost work? Solved tasks, attempts and tokens per commit, with intervals.

Runs of one task with different seeds are alike, so tasks, not runs, are what is drawn from:

- a share of solved runs has Wilson's interval (E. B. Wilson, 1927), with the number of runs
  divided by the design effect (L. Kish, 1965), which is between 1 and the number of seeds;
- costs per commit and differences to the base have percentile bootstrap intervals, where whole
  tasks are drawn. A difference uses only pairs of runs with the same task and seed.

Where no task differs at all, resampling would claim certainty. Then the interval is what n tasks
without a difference leave open at 95 %: a share of 1 - 0.05^(1/n) of tasks could still differ.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from quant.tasks.record import TaskRun

Floats = NDArray[np.float64]

# The 97.5 % point of the normal distribution.
_Z: Final = 1.959963984540054
_RESAMPLES: Final = 4_000
_CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % interval; infinite where nothing bounds it."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Retention:
    """A quant against the base on the same tasks and seeds.

    `difference` is in shares of solved runs; `better` and `worse` count tasks. `tie` says that
    the data do not tell the two apart.
    """

    difference: Interval
    better: int
    worse: int
    pairs: int
    tie: bool


@dataclass(frozen=True, slots=True)
class ModelTasks:
    """One model over all tasks and seeds. Costs are `None` where nothing was committed.

    `partly` counts the runs that made progress without solving their task.
    """

    model: str
    model_digest: str
    runs: int
    tasks: int
    solved: int
    partly: int
    solved_share: Interval
    attempts_per_commit: Interval | None
    tokens_per_commit: Interval | None
    retention: Retention | None


def summarise(
    runs: Sequence[TaskRun], base_digest: str, random: np.random.Generator
) -> tuple[ModelTasks, ...]:
    """One row per model, the base first, then in the order of their first runs.

    Only runs of equal settings may be given; else `ValueError`.
    """
    if len({run.settings for run in runs}) > 1:
        raise ValueError("runs of unequal settings cannot be compared")
    by_model: dict[str, list[TaskRun]] = defaultdict(list)
    for run in runs:
        by_model[run.model_digest].append(run)
    base = by_model.get(base_digest, [])
    order = sorted(by_model, key=lambda model: model != base_digest)
    return tuple(
        _row(by_model[model], base if model != base_digest else [], random) for model in order
    )


def wilson(successes: float, trials: float) -> Interval:
    """Wilson's score interval of a share; the trials need not be whole."""
    if trials <= 0:
        return Interval(math.nan, 0.0, 1.0)
    share = successes / trials
    spread = _Z**2 / trials
    middle = (share + spread / 2) / (1 + spread)
    half = _Z / (1 + spread) * math.sqrt(share * (1 - share) / trials + spread / (4 * trials))
    # Rounding may put a bound past the share itself where that is 0 or 1.
    low, high = min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))
    return Interval(share, low, high)


def solved_share(runs: Sequence[TaskRun]) -> Interval:
    """The share of solved runs, with its interval widened by how alike a task's runs are."""
    tasks = list(_by_task(runs).values())
    solved = sum(run.solved for run in runs)
    effect = _design_effect([(sum(r.solved for r in task), len(task)) for task in tasks])
    return wilson(solved / effect, len(runs) / effect)


def retention(
    runs: Sequence[TaskRun], base: Sequence[TaskRun], random: np.random.Generator
) -> Retention | None:
    """How a quant fares against the base; `None` where they share no task and seed."""
    solved = {(run.task_digest, run.seed): run.solved for run in base}
    differences: dict[str, list[int]] = defaultdict(list)
    for run in runs:
        paired = solved.get((run.task_digest, run.seed))
        if paired is not None:
            differences[run.task_digest].append(int(run.solved) - int(paired))
    if not differences:
        return None
    sums = np.array([sum(task) for task in differences.values()], np.float64)
    sizes = np.array([len(task) for task in differences.values()], np.float64)
    found = _bootstrap(sums, sizes, random)
    if not sums.any():
        open_share = 1 - (1 - _CONFIDENCE) ** (1 / len(sums))
        found = Interval(0.0, -open_share, open_share)
    return Retention(
        difference=found,
        better=int((sums > 0).sum()),
        worse=int((sums < 0).sum()),
        pairs=int(sizes.sum()),
        tie=found.low <= 0 <= found.high,
    )


def _row(
    runs: Sequence[TaskRun], base: Sequence[TaskRun], random: np.random.Generator
) -> ModelTasks:
    first = runs[0]
    return ModelTasks(
        model=first.model,
        model_digest=first.model_digest,
        runs=len(runs),
        tasks=len(_by_task(runs)),
        solved=sum(run.solved for run in runs),
        partly=sum(run.commits > 0 and not run.solved for run in runs),
        solved_share=solved_share(runs),
        attempts_per_commit=_per_commit(runs, lambda run: run.attempts, random),
        tokens_per_commit=_per_commit(runs, lambda run: run.tokens, random),
        retention=retention(runs, base, random) if base else None,
    )


def _per_commit(
    runs: Sequence[TaskRun], cost: Callable[[TaskRun], int], random: np.random.Generator
) -> Interval | None:
    """A cost over all runs, also those in vain, divided by all commits."""
    tasks = list(_by_task(runs).values())
    costs = np.array([sum(cost(run) for run in task) for task in tasks], np.float64)
    commits = np.array([sum(run.commits for run in task) for task in tasks], np.float64)
    return _bootstrap(costs, commits, random) if commits.any() else None


def _by_task(runs: Iterable[TaskRun]) -> Mapping[str, list[TaskRun]]:
    tasks: dict[str, list[TaskRun]] = defaultdict(list)
    for run in runs:
        tasks[run.task_digest].append(run)
    return tasks


def _design_effect(tasks: Sequence[tuple[int, int]]) -> float:
    """The variance with whole tasks drawn over that with runs drawn, from (solved, runs) each."""
    runs = sum(size for _, size in tasks)
    largest = max(size for _, size in tasks)
    share = sum(solved for solved, _ in tasks) / runs
    naive = share * (1 - share) / runs
    if naive == 0 or len(tasks) < 2:
        return float(largest)
    squares = sum((solved - size * share) ** 2 for solved, size in tasks)
    clustered = squares / runs**2 * len(tasks) / (len(tasks) - 1)
    return float(min(max(clustered / naive, 1.0), largest))


def _bootstrap(numerators: Floats, denominators: Floats, random: np.random.Generator) -> Interval:
    """A ratio of sums over tasks, with its percentile interval when tasks are drawn anew."""
    count = len(numerators)
    draws = random.multinomial(count, np.full(count, 1 / count), size=_RESAMPLES)
    tops, bottoms = draws @ numerators, draws @ denominators
    # A draw without any commit costs infinitely much per commit.
    ratios = np.divide(tops, bottoms, out=np.full(_RESAMPLES, np.inf), where=bottoms > 0)
    edge = (1 - _CONFIDENCE) / 2
    # Without interpolation: between a number and infinity there is none.
    low, high = np.quantile(ratios, (edge, 1 - edge), method="inverted_cdf")
    return Interval(float(numerators.sum() / denominators.sum()), float(low), float(high))
