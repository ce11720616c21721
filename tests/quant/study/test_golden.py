"""Our numbers against those that llama-perplexity printed, for quants of a real model.

`python -m benchmarks.capture_perplexity` wrote what is compared with, and says how it was found.
"""

import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from quant.corpora.corpora import SHIPPED
from quant.making.make import make
from quant.making.plan import plan
from quant.making.target import Recipe, parse_targets
from quant.running.layout import Mode
from quant.study.study import Axes, Study
from tests.quant.files import smollm_path
from tests.quant.golden.printed import captured, here, ours, ours_of_base, unlike
from tests.quant.study.small import around, run

CAPTURED: Mapping[str, Any] = captured("smollm2.json")
TYPES = ("Q4_K_M", "Q2_K")
Models = Mapping[str, Path]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """F16 from the shipped model, and quants of that."""
    folder, source, never = tmp_path_factory.mktemp("quants"), smollm_path(), threading.Event()
    made: dict[str, Path] = {}
    for names in ("F16", ",".join(TYPES)):
        recipe = Recipe(requantise=names == "F16")
        list(make(plan(source, folder, parse_targets(names), recipe, "refuse", never), never))
        made |= {name: next(folder.glob(f"*{name}.gguf")) for name in names.split(",")}
        source = made["F16"]
    return made


@pytest.mark.parametrize("name", ["F16", *TYPES])
def test_quants_are_those_of_llama_quantize_byte_for_byte(models: Models, name: str) -> None:
    with models[name].open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    assert found == CAPTURED["models"][name]


# The ways take turns, as all give the same numbers. At 512 the fifth chunk is alone in its batch;
# at 128 six chunks do not share a computation evenly; at 1,024 two fill a batch and one is left.
@pytest.mark.parametrize(
    ("printed", "mode"),
    list(zip(CAPTURED["runs"], ["windows", "file", "lockstep"], strict=True)),
    ids=lambda one: f"{one['corpus']}-{one['n_ctx']}" if isinstance(one, dict) else one,
)
def test_statistics_are_those_of_llama_perplexity_to_the_last_printed_digit(
    tmp_path: Path, models: Models, printed: Mapping[str, Any], mode: Mode
) -> None:
    text = SHIPPED[printed["corpus"]][1].read_bytes()
    assert hashlib.sha256(text).hexdigest() == printed["text_sha256"], "capture again"
    wanted = Study(
        base=models["F16"],
        quants=tuple(models[name] for name in TYPES),
        corpora=(printed["corpus"],),
        axes=Axes(n_ctx=(printed["n_ctx"],), threads=(CAPTURED["threads"],)),
        chunks=printed["chunks"],
        mode=mode,
        speeds=False,
    )
    (found,) = run(wanted, around(tmp_path)).comparisons
    same = here() == CAPTURED["system"]
    assert not unlike(ours_of_base(found), printed["base"], same)
    for name, quant in zip(TYPES, found.quants, strict=True):
        assert not unlike(ours(quant), printed["quants"][name], same), name
