"""Speculation in the default settings: flash attention where llama.cpp chooses it, KV as F16.

There the size of a batch moves logits. By how much these models' do is bounded here; for a real
one, `python -m benchmarks.bench_rounding` measures it. docs/engine.md tells what follows.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.bench_rounding import measure
from tests.engine.exact import GREEDY, bench
from tests.models.form import Architecture
from tests.models.noise import write_random_gguf
from tests.models.scripted import write_scripted_gguf_with_head
from veriloop_tui.engine.settings import LoadSettings

DEFAULT: dict[str, Any] = {"flash_attention": "auto", "type_k": "f16", "type_v": "f16"}
PROMPT = tuple(b"A prompt that is not short: go on. ")
SCRIPT = "The quick brown fox jumps over the lazy dog, isn't it? " * 8
TOKENS = np.random.default_rng(0).integers(0, 256, 400).tolist()
RANDOM: list[Architecture] = ["qwen35", "qwen35moe", "hy_v3", "llama"]


@pytest.mark.parametrize("k", range(1, 9))
def test_a_scripted_model_says_the_same_with_and_without_drafts(tmp_path: Path, k: int) -> None:
    """Its best token is ahead by a hundred logits, so rounding cannot show."""
    model = write_scripted_gguf_with_head(tmp_path / "m.gguf", {}, SCRIPT, right_share=0.7)
    job = replace(GREEDY, max_tokens=400)
    with (
        bench(model, **DEFAULT) as plain,
        bench(model, speculation="always", draft_max=k, lookup=True, **DEFAULT) as busy,
    ):
        said = busy.say(PROMPT, job)

        assert said == plain.say(PROMPT, job)
        assert said.texts == (SCRIPT,)
        assert 0 < said.usage.accepted_tokens < said.usage.drafted_tokens


@pytest.mark.parametrize("architecture", RANDOM)
def test_batches_of_random_weights_move_logits_by_less_than_a_twentieth(
    architecture: Architecture, tmp_path: Path
) -> None:
    """Their deviation is 3. The most that was measured is 0.02."""
    model = write_random_gguf(tmp_path / "m.gguf", architecture, 7)

    for one in measure(LoadSettings(model, threads=1), TOKENS, (2, 4, 8)):
        assert one.largest < 0.05, one


@pytest.mark.parametrize("architecture", RANDOM)
def test_in_the_exact_setting_they_move_by_less_than_a_ten_thousandth(
    architecture: Architecture, tmp_path: Path
) -> None:
    model = write_random_gguf(tmp_path / "m.gguf", architecture, 7)
    exact = LoadSettings(model, threads=1, flash_attention="off", type_k="f32", type_v="f32")

    for one in measure(exact, TOKENS, (2, 4, 8)):
        assert one.largest < 1e-4, one
        assert one.changed == 0


def test_batches_do_move_logits_at_all(tmp_path: Path) -> None:
    """Else the bounds above would show nothing."""
    model = write_random_gguf(tmp_path / "m.gguf", "llama", 7)

    assert measure(LoadSettings(model, threads=1), TOKENS, (4,))[0].largest > 0
