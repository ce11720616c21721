"""Plots of a comparison, drawn by matplotlib without a screen.

Each quant has the same number and colour in all plots of a comparison. Names come from files that
anybody may have written, so they are shortened, made harmless, and never read as mathematics.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from quant.report.data import Comparison, Estimate
from quant.report.rank import Ranked, front, ranked
from veriloop_tui.core.excerpt import one_line
from veriloop_tui.errors import LibraryMissing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Format = Literal["svg", "png"]
FORMATS: Final[tuple[Format, ...]] = ("svg", "png")

_NAME_LENGTH: Final = 36
_TAIL: Final = "99.9 %"
_MIB: Final = 2**20
# A 95 % interval of a normal distribution.
_Z: Final = 1.96
_PER_INCH: Final = 120
_MOST_POINTS: Final = 512


def plots(comparison: Comparison) -> Iterator[tuple[str, Figure]]:
    """Each plot with its name; those without data are left out. Raises `LibraryMissing`."""
    rows = ranked(comparison)
    if not rows:
        return
    drawn: tuple[tuple[str, Callable[[tuple[Ranked, ...]], Figure | None]], ...] = (
        ("kld-size", _kld_against_size),
        ("ppl-ratio", _ppl_ratio),
        ("same-top", _same_top),
        ("kld-position", _kld_by_position),
        ("delta-p", _delta_p),
    )
    for name, draw in drawn:
        figure = draw(rows)
        if figure is not None:
            yield name, figure


def to_bytes(figure: Figure, form: Format) -> bytes:
    """A figure as a file, the same bytes for the same figure."""
    from matplotlib import rc_context

    out = io.BytesIO()
    # Letters become outlines: no font is needed to look at it, and no text can be markup.
    with rc_context({"svg.fonttype": "path", "svg.hashsalt": "veriloop"}):
        metadata = {"Date": None} if form == "svg" else {"Software": None}
        figure.savefig(out, format=form, dpi=_PER_INCH, metadata=metadata)
    return out.getvalue()


def write_plots(comparison: Comparison, folder: Path, prefix: str) -> tuple[Path, ...]:
    """Write every plot as SVG and PNG. Raises `LibraryMissing`, `OSError`."""
    written: list[Path] = []
    for name, figure in plots(comparison):
        for form in FORMATS:
            path = folder / f"{prefix}{name}.{form}"
            path.write_bytes(to_bytes(figure, form))
            written.append(path)
    return tuple(written)


def _kld_against_size(rows: tuple[Ranked, ...]) -> Figure | None:
    """Mean and tail of the KLD against the file's size, with the Pareto front of the mean."""
    figure, axes = _figure(2)
    mean, tail = axes
    for row in rows:
        kld = row.quant.kld
        _point(mean, row, kld.value, *_above_zero(kld))
        if (extreme := row.quant.kld_at(_TAIL)) is not None:
            _point(tail, row, extreme, 0, 0)
    best = front(rows)
    sizes = [row.quant.file_size / _MIB for row in best]
    mean.plot(sizes, [row.quant.kld.value for row in best], color="0.6", linewidth=1, zorder=0)
    for panel, title in ((mean, "mean KLD (line: Pareto front)"), (tail, f"KLD, {_TAIL}")):
        _label(panel, title, "file size, MiB", "nats")
    least = min(row.quant.kld.value for row in rows)
    if least > 0:
        mean.set_yscale("log")
        # An error bar may reach down to nearly nothing, which is no reason to show all of that.
        mean.set_ylim(bottom=least / 3)
    if all((row.quant.kld_at(_TAIL) or 0) > 0 for row in rows):
        tail.set_yscale("log")
    return _finish(figure, rows)


def _ppl_ratio(rows: tuple[Ranked, ...]) -> Figure | None:
    figure, (panel,) = _figure(1)
    for row in rows:
        ratio = row.quant.ppl_ratio
        _point(panel, row, ratio.value, _Z * ratio.spread, _Z * ratio.spread)
    panel.axhline(1.0, color="0.6", linewidth=1, zorder=0)
    _label(panel, "perplexity over that of the base", "file size, MiB", "ratio")
    return _finish(figure, rows)


def _same_top(rows: tuple[Ranked, ...]) -> Figure | None:
    figure, (panel,) = _figure(1)
    for row in rows:
        share = row.quant.same_top
        error = 100 * _Z * share.spread
        _point(panel, row, 100 * share.value, error, error)
    _label(panel, "tokens with the same first choice", "file size, MiB", "%")
    return _finish(figure, rows)


def _kld_by_position(rows: tuple[Ranked, ...]) -> Figure | None:
    drawn = tuple(row for row in rows if row.quant.kld_by_position)
    if not drawn:
        return None
    figure, (panel,) = _figure(1)
    for row in drawn:
        means = _binned(row.quant.kld_by_position)
        panel.plot(*means, color=_colour(row), linewidth=1)
    _label(panel, "mean KLD by position", "scored position in the chunk", "nats")
    if all(value > 0 for row in drawn for value in _binned(row.quant.kld_by_position)[1]):
        panel.set_yscale("log")
    return _finish(figure, drawn)


def _delta_p(rows: tuple[Ranked, ...]) -> Figure | None:
    drawn = [(row, row.quant.delta_p_histogram) for row in rows]
    figure, (panel,) = _figure(1)
    shown: list[Ranked] = []
    for row, histogram in drawn:
        if histogram is None or not sum(histogram.counts):
            continue
        total = sum(histogram.counts)
        edges = [100 * edge for edge in histogram.edges]
        shares = [count / total for count in histogram.counts]
        panel.stairs(shares, edges, color=_colour(row), linewidth=1)
        shown.append(row)
    if not shown:
        return None
    panel.set_yscale("log")
    _label(panel, "Δp of the right token", "percentage points", "share of tokens")
    return _finish(figure, tuple(shown))


def _figure(panels: int) -> tuple[Figure, tuple[Axes, ...]]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise LibraryMissing("matplotlib", "plots", "pip install 'veriloop-tui[quant]'") from None
    figure = Figure(figsize=(5.2 * panels + 0.8, 4.4), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)
    return figure, tuple(axes[0])


def _finish(figure: Figure, rows: tuple[Ranked, ...]) -> Figure:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=_colour(row), marker="o", linestyle="") for row in rows]
    labels = [f"{row.number}  {one_line(row.quant.name, _NAME_LENGTH)}" for row in rows]
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _label(panel: Axes, title: str, below: str, left: str) -> None:
    panel.set_title(title, fontsize=10)
    panel.set_xlabel(below, fontsize=9)
    panel.set_ylabel(left, fontsize=9)
    panel.grid(alpha=0.3)


def _point(panel: Axes, row: Ranked, value: float, below: float, above: float) -> None:
    """A quant at its size, with an error bar and its number; filled if it is on the front.

    What is not finite has no place in a plot; tables tell of it.
    """
    if not all(map(math.isfinite, (value, below, above))):
        return
    size = row.quant.file_size / _MIB
    panel.errorbar(
        size,
        value,
        yerr=[[below], [above]],
        color=_colour(row),
        marker="o",
        markerfacecolor=_colour(row) if row.on_front else "white",
        linestyle="",
        capsize=3,
    )
    at, beside = (size, value), (5, 4)
    panel.annotate(str(row.number), at, xytext=beside, textcoords="offset points", fontsize=8)


def _colour(row: Ranked) -> str:
    return f"C{(row.number - 1) % 10}"


def _above_zero(estimate: Estimate) -> tuple[float, float]:
    """Error bars that stay above zero, where a logarithmic axis ends."""
    error = _Z * estimate.spread
    return min(error, max(0.0, estimate.value) * 0.999), error


def _binned(values: tuple[float, ...]) -> tuple[list[float], list[float]]:
    """Positions and means, with neighbours put together where there are too many for a plot."""
    width = -(-len(values) // _MOST_POINTS)
    groups = [values[at : at + width] for at in range(0, len(values), width)]
    middles = [at * width + (len(group) - 1) / 2 for at, group in enumerate(groups)]
    return middles, [sum(group) / len(group) for group in groups]
