"""Reports of models that are broken but finite: infinite perplexities, NaN correlations."""

import json
import math
from dataclasses import replace
from pathlib import Path

from quant.report.data import Estimate, Report
from quant.report.json_file import dump, load
from quant.report.pages import write_report
from tests.quant.made_up import comparison, loss, report


def _broken() -> Report:
    endless = Estimate(math.inf, math.nan, math.inf)
    loud = replace(
        loss("loud", 100, 700.0),
        ppl=endless,
        ppl_ratio=endless,
        ppl_difference=Estimate(-math.inf, math.nan),
        correlation=math.nan,
    )
    return report(comparison(loud, loss("calm", 90, 0.1)))


def test_what_is_not_finite_survives_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(dump(_broken()), "utf-8")

    def refuse(word: str) -> float:
        raise ValueError(word)

    json.loads(path.read_text("utf-8"), parse_constant=refuse)
    again = load(path)
    assert dump(again) == dump(_broken())
    first = again.comparisons[0].quants[0]
    assert first.ppl.value == math.inf
    assert first.ppl_difference.value == -math.inf
    assert math.isnan(first.correlation)


def test_all_pages_and_plots_are_written(tmp_path: Path) -> None:
    page, *_ = write_report(_broken(), tmp_path)
    assert "loud" in page.read_text("utf-8")
    assert ",inf," in (tmp_path / "report.csv").read_text("utf-8")
    assert (tmp_path / "1-ppl-ratio.svg").stat().st_size
