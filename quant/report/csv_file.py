"""A report as CSV: every number, one line per quant and corpus."""

from __future__ import annotations

import csv
import io
from typing import Final

from quant.report.data import Average, AverageRow, Comparison, Estimate, QuantLoss, Report
from quant.report.rank import Ranked, ranked
from veriloop_tui.core.excerpt import one_line

_NAME_LENGTH: Final = 300
# What spreadsheets take for the beginning of a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_ESTIMATES: Final = (
    "ppl",
    "base_ppl",
    "ppl_ratio",
    "ppl_difference",
    "ln_ratio",
    "kld",
    "delta_p",
    "rms_delta_p",
    "same_top",
)

_MEANS: Final = ("ln_ratio", "kld", "rms_delta_p", "same_top")


def to_csv(report: Report) -> str:
    """All comparisons in one table, then means over corpora; what a line lacks is empty there."""
    rows = [
        _row(comparison, row) for comparison in report.comparisons for row in ranked(comparison)
    ]
    rows += [_mean(average, row) for average in report.averages for row in average.quants]
    headings: dict[str, None] = {}
    for row in rows:
        headings |= dict.fromkeys(row)
    out = io.StringIO()
    writer = csv.DictWriter(out, headings, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _row(comparison: Comparison, row: Ranked) -> dict[str, object]:
    quant = row.quant
    return {
        "corpus": _text(comparison.corpus),
        "base": _text(comparison.base),
        "quant": _text(quant.name),
        "key": quant.key,
        "number": row.number,
        "place": row.place,
        "tied_with": " ".join(str(one) for one in row.tied_with),
        "on_front": int(row.on_front),
        "file_size": quant.file_size,
        "bpw_all": quant.bpw_all,
        "bpw_trunk": quant.bpw_trunk,
        "bpw_body": quant.bpw_body,
        "tokens": comparison.tokens,
        "chunks": comparison.chunks,
        "floor_kld": "" if comparison.floor is None else comparison.floor,
        **_estimates(quant, _ESTIMATES),
        "correlation": quant.correlation,
        **{f"kld {label}": value for label, value in quant.kld_percentiles},
        **{f"delta_p {label}": value for label, value in quant.delta_p_percentiles},
        "prompt_speed": "" if quant.prompt_speed is None else quant.prompt_speed,
        "generation_speed": "" if quant.generation_speed is None else quant.generation_speed,
        "settings": _settings(comparison.settings),
        "notices": _text(" ".join(quant.notices)),
    }


def _mean(average: Average, row: AverageRow) -> dict[str, object]:
    return {
        "corpus": _text(f"mean of {', '.join(average.corpora)}"),
        "quant": _text(row.name),
        "key": row.key,
        "file_size": row.file_size,
        **_estimates(row, _MEANS),
        "settings": _settings(average.settings),
    }


def _settings(pairs: tuple[tuple[str, str], ...]) -> str:
    return _text("; ".join(f"{key} {value}" for key, value in pairs))


def _estimates(quant: QuantLoss | AverageRow, names: tuple[str, ...]) -> dict[str, object]:
    cells: dict[str, object] = {}
    for name in names:
        estimate: Estimate = getattr(quant, name)
        cells[name] = estimate.value
        cells[f"{name}_error"] = "" if estimate.error is None else estimate.error
        cells[f"{name}_clustered"] = "" if estimate.clustered is None else estimate.clustered
    return cells


def _text(text: str) -> str:
    """Text that a spreadsheet shows instead of running it."""
    line = one_line(text, _NAME_LENGTH)
    return f"'{line}" if line.startswith(_FORMULA) else line
