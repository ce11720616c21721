"""A report as Markdown, a block to paste into a model card."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from quant.report.data import Comparison, Report
from quant.report.rank import ranked
from quant.report.text import (
    AVERAGE_HEADINGS,
    COLUMNS,
    TASK_HEADINGS,
    average_rows,
    average_title,
    base_line,
    name,
    number,
    settings_line,
    task_rows,
)

_SHOWN: Final = frozenset(
    {"MiB", "BPW", "mean KLD", "place", "KLD 99.9 %", "PPL ratio", "RMS Δp", "same top", "quant"}
)
# What Markdown reads as more than a character, and what GitHub and the hub make of plain words:
# addresses, names of people, pictures and mathematics.
_SPECIAL: Final = re.compile(
    r"[\\`*\[\]|~#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|[&<>@$]|:(?=[\w/+-])|(?<=www)\.",
    re.IGNORECASE,
)
_BACKSLASHED: Final = frozenset("\\`*[]|~#_")


def to_markdown(report: Report) -> str:
    """The report's tables, settings and notices."""
    return "\n".join(_lines(report)) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, whoever wrote it."""
    return _SPECIAL.sub(_harmless, text)


def _harmless(found: re.Match[str]) -> str:
    return f"\\{found[0]}" if found[0] in _BACKSLASHED else f"&#{ord(found[0])};"


def _lines(report: Report) -> Iterator[str]:
    yield f"## {escaped(name(report.title))}"
    for comparison in report.comparisons:
        yield ""
        yield from _comparison(comparison)
    for average in report.averages:
        yield ""
        yield f"### {escaped(average_title(average))}"
        yield ""
        yield from _table(AVERAGE_HEADINGS, average_rows(average))
    if report.tasks:
        yield ""
        yield "### Repair tasks"
        yield ""
        yield from _table(TASK_HEADINGS, task_rows(report))
        yield ""
        yield "Intervals at 95 %, whole tasks drawn. A tie: the data do not tell the two apart."
    for notice in report.notices:
        yield ""
        yield f"- {escaped(notice)}"
    yield ""
    yield f"Measured with {escaped(report.program)}, {escaped(report.created)}."


def _comparison(comparison: Comparison) -> Iterator[str]:
    yield f"### {escaped(name(comparison.corpus))}"
    yield ""
    yield f"Base: {escaped(base_line(comparison))}."
    yield ""
    rows = ranked(comparison)
    columns = [column for column in COLUMNS if column.heading in _SHOWN or column.heading == "#"]
    cells = [tuple(column.cell(row) for column in columns) for row in rows]
    yield from _table(tuple(column.heading for column in columns), cells)
    yield ""
    yield (
        f"{escaped(settings_line(comparison))}. KLD in nats, RMS Δp in percentage points, same top "
        "in %; ± is one standard error. Places are shared where the data do not tell quants apart."
    )
    notices = [(row.number, notice) for row in rows for notice in row.quant.notices]
    if notices or comparison.stopped:
        yield ""
    for at, notice in notices:
        yield f"- #{at}: {escaped(notice)}"
    for one in comparison.stopped:
        size = number(one.file_size / 2**20, 1)
        yield f"- no result: {escaped(name(one.name))}, {size} MiB: {escaped(one.problem)}"


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(escaped(heading) for heading in headings)} |"
    # The last column is a name, all others are numbers.
    yield f"|{' ---: |' * (len(headings) - 1)} --- |"
    for row in rows:
        yield f"| {' | '.join(escaped(cell) for cell in row)} |"
