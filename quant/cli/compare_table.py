"""What a comparison looks like in a terminal, while it runs and when it is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.table import Table
from rich.text import Text

from quant.report.data import Average, Comparison, Estimate
from quant.report.rank import ranked
from quant.report.text import (
    AVERAGE_HEADINGS,
    COLUMNS,
    average_rows,
    average_title,
    base_line,
    name,
    settings_line,
    with_error,
)
from quant.study.progress import Progress, QuantProgress, told
from quant.study.run import Preflight

# What is shown, by how wide the terminal is; the report has all.
_NARROW: Final = ("#", "MiB", "mean KLD", "place", "PPL ratio", "same top", "quant")
_WIDE: Final = (
    *("#", "MiB", "BPW", "mean KLD", "place", "KLD 99.9 %", "PPL ratio", "RMS Δp"),
    *("same top", "pp t/s", "tg t/s", "quant"),
)
_WIDE_FROM: Final = 150


def preflight(news: Preflight) -> str:
    """One line on what a place will take."""
    layout = news.layout
    way = {
        "lockstep": "base and quants in lock-step",
        "windows": f"one model at a time, {layout.window} chunks in memory",
        "file": "one model at a time, the base's logits in a file",
    }[layout.mode]
    disk = f", {layout.disk / 2**30:.2f} GiB of disk" if layout.disk else ""
    seconds = f", about {told(news.seconds).removesuffix(' left')}" if news.seconds else ""
    return (
        f"{news.title}: {news.chunks} chunks, {way}; about {layout.memory / 2**30:.2f} GiB of "
        f"memory{disk}{seconds}"
    )


def measuring(progress: Progress) -> Table:
    """The numbers so far."""
    table = Table(
        title=f"{name(progress.title)} · {progress.done} of {progress.of} chunks · "
        f"{told(progress.seconds_left)}"
    )
    for heading in ("quant", "MiB", "chunks", "mean KLD", "PPL ratio", "same top, %"):
        table.add_column(heading, justify="left" if heading == "quant" else "right")
    for one in progress.quants:
        table.add_row(Text(name(one.name)), f"{one.file_size / 2**20:.1f}", *_cells(one))
    return table


def _cells(one: QuantProgress) -> tuple[str | Text, ...]:
    if one.problem:
        return str(one.chunks), Text(one.problem, "red"), "", ""
    return (
        str(one.chunks),
        _cell(one.kld, 6),
        _cell(one.ppl_ratio, 4),
        _cell(one.same_top, 3, 100),
    )


def _cell(estimate: Estimate | None, digits: int, scale: float = 1.0) -> str:
    return "–" if estimate is None else with_error(estimate, digits, scale)


def comparison(found: Comparison, width: int) -> Table:
    """All quants of a comparison, the largest file first, for a terminal of so many columns."""
    table = Table(
        title=Text(f"{name(found.corpus)} · base {base_line(found)}"),
        caption=Text(f"{settings_line(found)}. ± is one standard error."),
    )
    shown = _WIDE if width >= _WIDE_FROM else _NARROW
    columns = [column for column in COLUMNS if column.heading in shown]
    for column in columns:
        left = column.heading == "quant"
        table.add_column(
            column.heading, justify="left" if left else "right", overflow="fold", no_wrap=not left
        )
    for row in ranked(found):
        table.add_row(*(Text(column.cell(row)) for column in columns))
    return table


def stopped(found: Comparison) -> Iterator[Text]:
    """A line for each quant without numbers, and for each notice."""
    for one in found.stopped:
        yield Text(f"{name(one.name)} has no result: {one.problem}", "red")
    for row in ranked(found):
        for notice in row.quant.notices:
            yield Text(f"#{row.number}: {notice}", "yellow")


def averages(found: Average) -> Table:
    """Means over corpora."""
    table = Table(title=Text(average_title(found)))
    for heading in AVERAGE_HEADINGS:
        table.add_column(heading, justify="left" if heading == "quant" else "right")
    for row in average_rows(found):
        table.add_row(*map(Text, row))
    return table
