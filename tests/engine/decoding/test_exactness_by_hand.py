"""What llama.cpp itself does with draft heads, by a loop that is not the program's own.

If one of these fails after llama-cpp-python was raised, its calls have changed: read `by_hand`.
"""

from pathlib import Path

import pytest

from tests.engine.by_hand import plain, speculative
from tests.models.form import Architecture
from tests.models.noise import write_random_draft_gguf, write_random_gguf
from tests.models.scripted import (
    write_chained_scripted_gguf,
    write_heavy_scripted_draft_gguf,
    write_heavy_scripted_gguf,
    write_scripted_draft_gguf,
    write_scripted_gguf,
    write_scripted_gguf_with_head,
)
from veriloop_tui.engine.decoding.llama import silence_logs

PROMPT = list(b"A prompt that is not short: go on. ")
SCRIPT = "The quick brown fox jumps over the lazy dog. " * 9
COUNT = 90


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence_logs()


@pytest.mark.parametrize("k", [1, 4, 8])
def test_a_scripted_head_that_is_always_right_has_every_token_accepted(
    tmp_path: Path, k: int
) -> None:
    target = write_scripted_gguf(tmp_path / "target.gguf", {}, SCRIPT)
    head = write_scripted_draft_gguf(tmp_path / "head.gguf", {}, SCRIPT)

    said = speculative(target, head, PROMPT, COUNT, k)

    assert said.tokens == plain(target, PROMPT, COUNT).tokens
    assert said.accepted == said.drafted >= COUNT - COUNT // k - 1


def test_a_scripted_head_that_is_never_right_changes_nothing(tmp_path: Path) -> None:
    target = write_scripted_gguf(tmp_path / "target.gguf", {}, SCRIPT)
    head = write_scripted_draft_gguf(tmp_path / "head.gguf", {}, SCRIPT, right_share=0.0)

    said = speculative(target, head, PROMPT, COUNT, 3)

    assert said.tokens == plain(target, PROMPT, COUNT).tokens
    assert said.accepted == 0


def test_a_scripted_head_inside_the_main_file_does_as_the_one_beside_it(tmp_path: Path) -> None:
    target = write_scripted_gguf(tmp_path / "target.gguf", {}, SCRIPT)
    head = write_scripted_draft_gguf(tmp_path / "head.gguf", {}, SCRIPT, right_share=0.7)
    both = write_scripted_gguf_with_head(tmp_path / "both.gguf", {}, SCRIPT, right_share=0.7)

    apart, together = (
        speculative(target, head, PROMPT, COUNT, 4),
        speculative(both, both, PROMPT, COUNT, 4),
    )

    assert together == apart
    assert 0 < together.accepted < together.drafted


@pytest.mark.parametrize("right_share", [1.0, 0.6])
def test_chained_scripted_layers_draft_a_token_each(tmp_path: Path, right_share: float) -> None:
    model = write_chained_scripted_gguf(
        tmp_path / "chained.gguf", SCRIPT, layers=3, right_share=right_share
    )

    said = speculative(model, model, PROMPT, COUNT, 3)

    assert said.tokens == plain(model, PROMPT, COUNT).tokens
    assert (said.accepted == said.drafted) == (right_share == 1.0)
    assert said.accepted > said.drafted // 2


@pytest.mark.parametrize(
    ("architecture", "layers"), [("qwen35", 1), ("qwen35moe", 1), ("hy_v3", 1), ("hy_v3", 3)]
)
def test_random_weights_say_the_same_whatever_a_random_head_guesses(
    tmp_path: Path, architecture: Architecture, layers: int
) -> None:
    target = write_random_gguf(tmp_path / "target.gguf", architecture, 7, depth=0.3)
    head = write_random_draft_gguf(
        tmp_path / "head.gguf", architecture, 7, depth=0.3, layers=layers
    )
    both = write_random_gguf(tmp_path / "both.gguf", architecture, 7, depth=0.3, layers=layers)

    apart = speculative(target, head, PROMPT, COUNT, 3)

    assert apart.tokens == plain(target, PROMPT, COUNT).tokens
    assert apart == speculative(both, both, PROMPT, COUNT, 3)
    assert 0 < apart.accepted < apart.drafted


def test_the_heavy_model_of_the_benchmarks_recites_and_its_head_foretells_it(
    tmp_path: Path,
) -> None:
    target = write_heavy_scripted_gguf(tmp_path / "target.gguf", {}, SCRIPT, megabytes=50)
    head = write_heavy_scripted_draft_gguf(tmp_path / "head.gguf", {}, SCRIPT, megabytes=50)
    light = write_scripted_gguf(tmp_path / "light.gguf", {}, SCRIPT)

    said = speculative(target, head, PROMPT, COUNT, 4)

    assert 50e6 < target.stat().st_size < 60e6
    assert said.tokens == plain(light, PROMPT, COUNT).tokens
    assert said.accepted == said.drafted > COUNT // 2
