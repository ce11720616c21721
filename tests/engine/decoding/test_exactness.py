"""Speculation changes nothing: the same tokens with it as without, for the same seed.

Weights are random or scripted (F32), flash attention is off and KV is F32. Each case drafts a fixed
number of tokens whatever it costs, and fails if nothing was drafted and accepted, or all was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.engine.by_hand import speculative
from tests.engine.exact import GREEDY, SAMPLED, Bench, Said, bench
from tests.models.form import Architecture
from tests.models.noise import write_random_draft_gguf, write_random_gguf
from tests.models.scripted import (
    write_chained_scripted_gguf,
    write_scripted_draft_gguf,
    write_scripted_gguf,
    write_scripted_gguf_with_head,
)
from veriloop_tui.engine.decoding.pace import CostCurve, Pace
from veriloop_tui.engine.job import Job, ThinkingBounds

PROMPT = tuple(b"A prompt that is not short: go on. ")
WORDY = tuple(b"Prompt number 2: go on. ")  # no random model here ends its answer to this
SCRIPT = "The quick brown fox jumps over the lazy dog, isn't it? " * 8
DEPTH = 0.3  # so little that a token decides much of what follows, and a head can be right
SEEDS = range(10)
THINKING = ThinkingBounds("<think>", "</think>", 6, "\nEnough.\n</think>\n", opened=True)

JOBS: Mapping[str, Job] = {
    "greedy": GREEDY,
    **{f"seed {seed}": replace(SAMPLED, seed=seed) for seed in SEEDS},
    "grammar": replace(SAMPLED, grammar=r"root ::= [\x01-\x7f]+"),
    "grammar that repeats": replace(SAMPLED, grammar='root ::= ([a-f] "xyz" | "d")+'),
    "stop string": replace(SAMPLED, stop=("r", "dog")),
    "stop string of several tokens": replace(GREEDY, stop=("own f", "\\Z")),
    "thinking that is closed": replace(SAMPLED, thinking=THINKING),
    "grammar after thinking": replace(
        SAMPLED, thinking=THINKING, grammar=r"root ::= [\x01-\x7f]+", lazy_after="</think>"
    ),
    "penalty": replace(GREEDY, sampling=replace(GREEDY.sampling, repeat_penalty=1.2)),
}


@dataclass(frozen=True)
class Case:
    """A model, the file of its head if that is another one, and whether prompts are searched."""

    model: Path
    draft: Path | None = None
    lookup: bool = False


def random_beside(folder: Path) -> Case:
    return Case(
        write_random_gguf(folder / "m.gguf", "qwen35", 7, depth=DEPTH),
        write_random_draft_gguf(folder / "d.gguf", "qwen35", 7, depth=DEPTH),
    )


def random_inside(architecture: Architecture, layers: int, *, lookup: bool = False) -> Make:
    def make(folder: Path) -> Case:
        path = folder / "m.gguf"
        write_random_gguf(path, architecture, 7, depth=DEPTH, layers=layers)
        return Case(path, lookup=lookup)

    return make


def scripted_beside(folder: Path) -> Case:
    return Case(
        write_scripted_gguf(folder / "m.gguf", {}, SCRIPT, piece_bytes=2),
        write_scripted_draft_gguf(folder / "d.gguf", {}, SCRIPT, piece_bytes=2, right_share=0.8),
    )


def scripted_inside(folder: Path) -> Case:
    path = folder / "m.gguf"
    return Case(write_scripted_gguf_with_head(path, {}, SCRIPT, piece_bytes=2, right_share=0.6))


def scripted_chained(folder: Path) -> Case:
    path = folder / "m.gguf"
    return Case(write_chained_scripted_gguf(path, SCRIPT, piece_bytes=2, right_share=0.6))


Make = Callable[[Path], Case]
CASES: Mapping[str, Make] = {
    "hybrid, head beside": random_beside,
    "hybrid, head inside": random_inside("qwen35", 1),
    "hybrid with experts, head inside": random_inside("qwen35moe", 1),
    "hybrid, head and lookup": random_inside("qwen35", 1, lookup=True),
    "hybrid, lookup": random_inside("qwen35", 0, lookup=True),
    "attention, lookup": random_inside("llama", 0, lookup=True),
    "attention, one draft layer": random_inside("hy_v3", 1),
    "attention, three draft layers": random_inside("hy_v3", 3),
    "scripted, head beside": scripted_beside,
    "scripted, head inside": scripted_inside,
    "scripted, three draft layers": scripted_chained,
}


@dataclass(frozen=True)
class Known:
    """A case with what it says when nothing is drafted, by the names of jobs."""

    case: Case
    plain: Mapping[str, Said]


@pytest.fixture(scope="module", params=CASES)
def known(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Known:
    case = CASES[request.param](tmp_path_factory.mktemp("case"))
    with bench(case.model) as plain:
        said = {name: plain.cold(PROMPT, job) for name, job in JOBS.items()}
    assert len({one.texts for one in said.values()}) > 3
    return Known(case, said)


@contextmanager
def drafting(case: Case, k: int) -> Iterator[Bench]:
    with bench(
        case.model, case.draft, speculation="always", draft_max=k, lookup=case.lookup
    ) as made:
        yield made


@pytest.mark.parametrize("k", range(1, 9))
def test_every_answer_is_token_for_token_what_plain_decoding_says(known: Known, k: int) -> None:
    with drafting(known.case, k) as program:
        said = {name: program.cold(PROMPT, job) for name, job in JOBS.items()}

    assert said == known.plain
    drafted = sum(one.usage.drafted_tokens for one in said.values())
    assert 0 < sum(one.usage.accepted_tokens for one in said.values()) < drafted


def test_answers_stay_the_same_while_the_pace_changes_the_length_of_drafts(known: Known) -> None:
    with drafting(known.case, 8) as program:
        # A curve on which speculation pays; what it then measures makes it think otherwise.
        flat = CostCurve([(1, 1.0), (9, 1.05)])
        program.loaded.decoder.pace = Pace(flat, 8)

        said = {name: program.cold(PROMPT, job) for name, job in JOBS.items()}

    assert said == known.plain
    assert sum(one.usage.drafted_tokens for one in said.values()) > 0


def test_what_became_of_an_answer_before_does_not_change_the_next_one(known: Known) -> None:
    """The memory, the head and the index of the last job are still there."""
    with drafting(known.case, 3) as program:
        for name in (*JOBS, *reversed(list(JOBS))):
            assert program.say(PROMPT, JOBS[name]) == known.plain[name]


def test_an_answer_that_ends_inside_a_draft_is_not_a_token_too_long(known: Known) -> None:
    with bench(known.case.model) as plain, drafting(known.case, 4) as program:
        for tokens in range(1, 12):
            short = replace(GREEDY, max_tokens=tokens)
            assert program.cold(PROMPT, short) == plain.cold(PROMPT, short)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize(
    "make",
    [
        random_beside,
        random_inside("qwen35moe", 1),
        random_inside("hy_v3", 1),
        random_inside("hy_v3", 3),
        scripted_chained,
    ],
)
def test_as_many_guesses_are_right_as_in_the_loop_by_hand(
    make: Make, k: int, tmp_path: Path
) -> None:
    """A head that is fed with the wrong rows changes no answer, but it is right less often."""
    case = make(tmp_path)
    wanted = speculative(case.model, case.draft or case.model, WORDY, GREEDY.max_tokens, k)

    with drafting(case, k) as program:
        said = program.cold(WORDY)

    assert said.made == len(wanted.tokens)
    assert said.usage.drafted_tokens == wanted.drafted
    assert said.usage.accepted_tokens == wanted.accepted > 0
