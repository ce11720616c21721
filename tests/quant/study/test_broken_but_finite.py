"""Studies that leave what is usual: few tokens, and a model that is wrong without bounds."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGUFReader

from quant.report.json_file import dump, load
from quant.study.study import Axes
from tests.quant.files import write_base
from tests.quant.study.small import around, run, study
from tests.scripted_gguf import write_random_gguf


def _louder(base: Path, times: float) -> Path:
    loud = Path(shutil.copy(base, base.with_name("loud.gguf")))
    reader = GGUFReader(loud, "r+")
    norm = next(one for one in reader.tensors if one.name == "output_norm.weight")
    norm.data[:] *= times
    reader.data.flush()
    return loud


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_losses_too_large_for_a_perplexity_are_told_as_infinite(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    report = run(study(tmp_path, base, _louder(base, 1e4)), around(tmp_path))
    (quant,) = report.comparisons[0].quants
    assert quant.ppl.value == quant.ppl_ratio.value == math.inf
    assert 709 < quant.ln_ratio.value < math.inf
    (tmp_path / "report.json").write_text(dump(report), "utf-8")
    again = load(tmp_path / "report.json").comparisons[0].quants[0]
    assert (again.ppl.value, again.kld) == (math.inf, quant.kld)


def test_too_few_tokens_for_a_correlation_make_a_report_all_the_same(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    other = write_random_gguf(tmp_path / "other.gguf", "llama", 4, width=256, blocks=2)
    wanted = replace(study(tmp_path, base, other), axes=Axes(n_ctx=(8,)), chunks=2)
    report = run(wanted, around(tmp_path))
    assert report.comparisons[0].tokens == 6
    (tmp_path / "report.json").write_text(dump(report), "utf-8")
    again = load(tmp_path / "report.json")
    assert math.isnan(again.comparisons[0].quants[0].correlation)
    assert dump(again) == dump(report)
