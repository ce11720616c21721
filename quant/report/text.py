"""The numbers of a report as people read them: the same words in tables, Markdown and HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from quant.report.data import Average, Comparison, Estimate, Pair, Report
from quant.report.rank import Ranked
from quant.tasks.tasks import Interval, ModelTasks
from veriloop_tui.core.excerpt import one_line

_NAME_LENGTH: Final = 100
_MISSING: Final = "–"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, what it means, and the text of a quant's cell."""

    heading: str
    meaning: str
    cell: Callable[[Ranked], str]


def number(value: float | None, digits: int) -> str:
    """A number with so many digits after the point; a dash for what is not there."""
    return _MISSING if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def with_error(estimate: Estimate, digits: int, scale: float = 1.0) -> str:
    """A value with one standard error, over whole chunks where that is known and larger."""
    value = number(estimate.value * scale, digits)
    if estimate.error is None and estimate.clustered is None:
        return value
    return f"{value} ± {number(estimate.spread * scale, digits)}"


def name(text: str) -> str:
    """A quant's name on one line without control characters; escaping is the writer's part."""
    return one_line(text, _NAME_LENGTH)


def place(row: Ranked) -> str:
    """The place by mean KLD, with the quants that it cannot be told from."""
    ties = ", ".join(str(one) for one in row.tied_with)
    return f"{row.place} (tie with {ties})" if ties else str(row.place)


def verdict(row: Ranked) -> str:
    """Whether the quant is on the front, or which ones are better in size and loss at once."""
    if row.on_front:
        return "yes"
    return "no: " + ", ".join(str(one) for one in row.beaten_by)


COLUMNS: Final = (
    Column("#", "number in the plots; the largest file first", lambda row: str(row.number)),
    Column("MiB", "file size", lambda row: number(row.quant.file_size / 2**20, 1)),
    Column("BPW", "bits per weight over all tensors", lambda row: number(row.quant.bpw_all, 3)),
    Column(
        "trunk", "bits per weight without draft head", lambda row: number(row.quant.bpw_trunk, 3)
    ),
    Column(
        "body",
        "bits per weight without embeddings, output and draft head",
        lambda row: number(row.quant.bpw_body, 3),
    ),
    Column("mean KLD", "nats", lambda row: with_error(row.quant.kld, 6)),
    Column("place", "by mean KLD; ties are shown as such", place),
    Column("KLD 99.9 %", "nats", lambda row: number(row.quant.kld_at("99.9 %"), 4)),
    Column("PPL ratio", "to the base", lambda row: with_error(row.quant.ppl_ratio, 4)),
    Column("PPL", "perplexity", lambda row: with_error(row.quant.ppl, 4)),
    Column(
        "RMS Δp",
        "of the right token, in percentage points",
        lambda row: with_error(row.quant.rms_delta_p, 3, 100),
    ),
    Column(
        "same top",
        "tokens with the base's first choice, in %",
        lambda row: with_error(row.quant.same_top, 3, 100),
    ),
    Column("pp t/s", "prompt tokens per second", lambda row: number(row.quant.prompt_speed, 1)),
    Column("tg t/s", "generated tokens/s", lambda row: number(row.quant.generation_speed, 1)),
    Column(
        "Pareto front",
        "whether nothing of these is smaller or equal and loses less",
        verdict,
    ),
    Column("quant", "a label, not a size", lambda row: name(row.quant.name)),
)


MORE_COLUMNS: Final = (
    COLUMNS[0],
    Column("PPL difference", "to the base", lambda row: with_error(row.quant.ppl_difference, 4)),
    Column("ln PPL ratio", "nats", lambda row: with_error(row.quant.ln_ratio, 5)),
    Column(
        "correlation",
        "of the losses of both, in %",
        lambda row: number(row.quant.correlation * 100, 2),
    ),
    Column(
        "mean Δp",
        "of the right token, in percentage points",
        lambda row: with_error(row.quant.delta_p, 3, 100),
    ),
    COLUMNS[-1],
)


def settings_line(comparison: Comparison) -> str:
    """The settings of a comparison in one line."""
    parts = [f"{key} {value}" for key, value in comparison.settings]
    counts = f"{comparison.tokens:,} scored tokens in {comparison.chunks} chunks"
    return one_line("; ".join([counts, *parts]), 2_000)


def base_line(comparison: Comparison) -> str:
    """The base in one line, with what it loses against itself."""
    floor = ""
    if comparison.floor is not None:
        floor = f", mean KLD against itself {number(comparison.floor, 6)}"
    size = number(comparison.base_size / 2**20, 1)
    return f"{name(comparison.base)}, {size} MiB, PPL {with_error(comparison.base_ppl, 4)}{floor}"


PAIR_HEADINGS: Final = ("difference of mean KLD", "95 % interval", "", "of", "less")


def pair_rows(rows: tuple[Ranked, ...], pairs: Sequence[Pair]) -> tuple[tuple[str, ...], ...]:
    """Each two quants on the same tokens, under `PAIR_HEADINGS`."""
    known = {row.quant.key: f"{row.number} {name(row.quant.name)}" for row in rows}
    return tuple(
        (
            number(pair.difference, 6),
            _between(pair),
            "tie" if pair.tie else "",
            known[pair.first],
            known[pair.second],
        )
        for pair in pairs
    )


def _between(pair: Pair) -> str:
    if pair.half is None:
        return "one chunk tells nothing"
    low, high = pair.difference - pair.half, pair.difference + pair.half
    return f"[{number(low, 6)}, {number(high, 6)}]"


AVERAGE_HEADINGS: Final = ("MiB", "mean KLD", "ln PPL ratio", "RMS Δp", "same top", "quant")


def average_rows(average: Average) -> tuple[tuple[str, ...], ...]:
    """Means over corpora, the largest file first, under `AVERAGE_HEADINGS`."""
    return tuple(
        (
            number(one.file_size / 2**20, 1),
            with_error(one.kld, 6),
            with_error(one.ln_ratio, 5),
            with_error(one.rms_delta_p, 3, 100),
            with_error(one.same_top, 3, 100),
            name(one.name),
        )
        for one in sorted(average.quants, key=lambda row: (-row.file_size, row.key))
    )


def average_title(average: Average) -> str:
    """What the mean is over."""
    settings = "; ".join(f"{key} {value}" for key, value in average.settings)
    return one_line(f"Mean over {', '.join(average.corpora)}, each the same ({settings})", 2_000)


TASK_HEADINGS: Final = (
    "mean KLD",
    "solved",
    "share, %",
    "against the base, points",
    "attempts per commit",
    "tokens per commit",
    "model",
)


def task_rows(report: Report) -> tuple[tuple[str, ...], ...]:
    """Each model's repair tasks beside what it loses on the first corpus, under `TASK_HEADINGS`."""
    losses = {
        one.key: with_error(one.kld, 6)
        for comparison in report.comparisons[:1]
        for one in comparison.quants
    }
    return tuple((losses.get(row.model_digest, ""), *task_cells(row)) for row in report.tasks)


def task_cells(row: ModelTasks) -> tuple[str, ...]:
    """One model's repair tasks, under all of `TASK_HEADINGS` but the first."""
    return (
        f"{row.solved} of {row.runs}",
        interval(row.solved_share, 0, 100),
        "" if row.retention is None else _retained(row),
        _cost(row.attempts_per_commit, 1),
        _cost(row.tokens_per_commit, 0),
        name(row.model),
    )


def interval(found: Interval, digits: int, scale: float = 1.0) -> str:
    """An estimate with its interval in brackets."""
    low, high = (_bound(edge * scale, digits) for edge in (found.low, found.high))
    return f"{number(found.value * scale, digits)} [{low}, {high}]"


def _retained(row: ModelTasks) -> str:
    assert row.retention is not None
    tie = " tie" if row.retention.tie else ""
    return interval(row.retention.difference, 0, 100) + tie


def _cost(found: Interval | None, digits: int) -> str:
    return "no commit" if found is None else interval(found, digits)


def _bound(value: float, digits: int) -> str:
    return "∞" if math.isinf(value) else number(value, digits)
