"""Several candidates at once: each says what it would say alone, whatever the others do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.exact import GREEDY, SAMPLED, After, bench
from tests.models.form import Architecture
from tests.models.noise import write_random_gguf
from veriloop_tui.engine.job import Job

PROMPT = tuple(b"Several ways to go on: ")
JOBS: Mapping[str, Job] = {
    "sampled": SAMPLED,
    "grammar": replace(SAMPLED, grammar=r"root ::= [\x01-\x7f]+"),
    "stop string": replace(SAMPLED, stop=("r", "E")),
    "penalty": replace(SAMPLED, sampling=replace(SAMPLED.sampling, repeat_penalty=1.3)),
    "greedy": replace(GREEDY, max_tokens=20),
}


@pytest.mark.parametrize("parallel", [1, 3, 8])
@pytest.mark.parametrize(
    ("architecture", "layers"), [("qwen35", 1), ("qwen35moe", 0), ("hy_v3", 1), ("llama", 0)]
)
def test_candidates_say_what_single_runs_with_their_seeds_say(
    architecture: Architecture, layers: int, parallel: int, tmp_path: Path
) -> None:
    """In waves of `parallel`; a wave of one is drafted ahead like any single run."""
    path = tmp_path / "m.gguf"
    write_random_gguf(path, architecture, 7, depth=0.3, layers=layers)
    with (
        bench(path) as plain,
        bench(path, speculation="always", lookup=True, parallel=parallel) as busy,
    ):
        for name, job in JOBS.items():
            alone = [plain.cold(PROMPT, replace(job, seed=job.seed + i)) for i in range(5)]

            said = busy.say(PROMPT, replace(job, n=5))

            assert said.texts == tuple(one.texts[0] for one in alone), name
            assert said.ends == tuple(one.ends[0] for one in alone), name
            assert said.made == sum(one.made for one in alone), name
            assert said.usage.prompt_tokens == len(PROMPT)


def test_candidates_of_one_prompt_differ_by_their_seeds(tiny_llama: Path) -> None:
    with bench(tiny_llama) as plain:
        said = plain.say(PROMPT, replace(SAMPLED, n=4))

    assert len(set(said.texts)) == 4


@pytest.mark.parametrize("architecture", ["qwen35", "llama"])
def test_candidates_given_up_anywhere_leave_nothing_behind(
    architecture: Architecture, tmp_path: Path
) -> None:
    path = write_random_gguf(tmp_path / "m.gguf", architecture, 7, depth=0.3)
    with bench(path, speculation="always", lookup=True, parallel=3) as busy, bench(path) as plain:
        expected = plain.cold(PROMPT)
        for calls in range(0, 60, 7):
            given_up = busy.say(PROMPT, replace(SAMPLED, n=5, max_tokens=30), After(calls))

            assert "cancelled" in given_up.ends
            assert busy.say(PROMPT) == expected
            assert busy.loaded.memory.used == len(busy.loaded.memory)
