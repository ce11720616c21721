"""A report as one HTML file that needs nothing else: no scripts, no fonts, no network.

Names come from files that anybody may have written. They are escaped, and a policy in the page
forbids everything but its own style and its own images, so that a mistake here would do no harm.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import jinja2

from quant.report.data import Comparison, QuantLoss, Report
from quant.report.rank import Ranked, ranked
from quant.report.text import (
    AVERAGE_HEADINGS,
    COLUMNS,
    MORE_COLUMNS,
    PAIR_HEADINGS,
    TASK_HEADINGS,
    average_rows,
    average_title,
    base_line,
    name,
    number,
    pair_rows,
    settings_line,
    task_rows,
)
from veriloop_tui.core.excerpt import one_line

_LINE: Final = 600
_CAPTIONS: Final = {
    "kld-size": "KLD against file size",
    "ppl-ratio": "Perplexity ratio",
    "same-top": "Same first choice",
    "kld-position": "KLD by position",
    "delta-p": "Distribution of Δp",
}


@dataclass(frozen=True, slots=True)
class Image:
    """A plot: its name as `plot.plots` gives it, and its SVG file."""

    name: str
    svg: bytes

    @property
    def caption(self) -> str:
        """What it shows."""
        return _CAPTIONS.get(self.name, self.name)

    @property
    def address(self) -> str:
        """The file itself as an address; an image cannot run scripts, inline SVG could."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg).decode()}"


@dataclass(frozen=True, slots=True)
class _Row:
    ranked: Ranked
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Percentiles:
    headings: tuple[str, ...]
    lines: tuple[tuple[tuple[str, ...], str], ...]


@dataclass(frozen=True, slots=True)
class _Part:
    comparison: Comparison
    base: str
    settings: str
    more: tuple[tuple[str, ...], ...]
    pairs: tuple[tuple[str, ...], ...]
    rows: tuple[_Row, ...]
    images: Sequence[Image]
    percentiles: tuple[tuple[str, _Percentiles], ...]


def to_html(report: Report, images: Sequence[Sequence[Image]]) -> str:
    """The page; `images` holds the plots of each comparison, in their order."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("quant.report", "html_templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["name"] = name
    environment.filters["line"] = lambda text: one_line(text, _LINE)
    pairs = zip(report.comparisons, images, strict=True)
    return environment.get_template("report.html").render(
        report=report,
        parts=[_part(comparison, plots) for comparison, plots in pairs],
        columns=COLUMNS,
        more_columns=MORE_COLUMNS,
        pair_headings=PAIR_HEADINGS,
        average_headings=AVERAGE_HEADINGS,
        averages=[(average_title(one), average_rows(one)) for one in report.averages],
        task_headings=TASK_HEADINGS,
        tasks=task_rows(report),
    )


def _part(comparison: Comparison, images: Sequence[Image]) -> _Part:
    rows = ranked(comparison)
    quants = [row.quant for row in rows]
    return _Part(
        comparison=comparison,
        base=base_line(comparison),
        settings=settings_line(comparison),
        rows=tuple(_Row(row, tuple(column.cell(row) for column in COLUMNS)) for row in rows),
        more=tuple(tuple(column.cell(row) for column in MORE_COLUMNS) for row in rows),
        pairs=pair_rows(rows, comparison.pairs),
        images=images,
        percentiles=(
            ("KLD, nats", _percentiles(quants, [dict(one.kld_percentiles) for one in quants], 1.0)),
            (
                "Δp, percentage points",
                _percentiles(quants, [dict(one.delta_p_percentiles) for one in quants], 100.0),
            ),
        ),
    )


def _percentiles(
    quants: Sequence[QuantLoss], found: Sequence[dict[str, float]], scale: float
) -> _Percentiles:
    headings = tuple(dict.fromkeys(label for one in found for label in one))
    lines = tuple(
        (tuple(_scaled(one.get(label), scale) for label in headings), name(quant.name))
        for quant, one in zip(quants, found, strict=True)
    )
    return _Percentiles(headings, lines)


def _scaled(value: float | None, scale: float) -> str:
    return number(None if value is None else value * scale, 4)
