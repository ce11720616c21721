"""Many requests after one another, as they come: each says what it would say from an empty memory.

Prompts branch off earlier ones and their answers anywhere, some requests are given up half-way,
some want several candidates; drafts go on all the while. Random weights, in the exact setting.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.engine.exact import GREEDY, SAMPLED, After, bench
from tests.models.form import Architecture
from tests.models.noise import write_random_gguf
from veriloop_tui.engine.job import Job

N_CTX = 2560
CHECKPOINT = 2048  # a hybrid's state is remembered here on the way
DEPTH = 0.3
JOBS = (
    GREEDY,
    SAMPLED,
    replace(SAMPLED, grammar=r"root ::= [\x01-\x7f]+"),
    replace(SAMPLED, grammar='root ::= ([a-f] "xyz" | "d")+'),
    replace(SAMPLED, stop=("r", "dog")),
    replace(SAMPLED, n=2),
    replace(SAMPLED, n=4),
)


class Conversations:
    """Prompts that go on from anywhere in what was said before, or from a long beginning."""

    def __init__(self, seed: int, beginning: int) -> None:
        self.random = np.random.default_rng(seed)
        self._beginning = self._new(beginning)
        self._known: list[tuple[int, ...]] = [()]

    def prompt(self) -> tuple[int, ...]:
        """Some of a known sequence, often all or almost all, and some new tokens."""
        if self.random.random() < 0.2:
            return (*self._beginning, *self._new(90))
        back = min(int(self.random.geometric(0.4)), len(self._known))
        one = self._known[-back]
        cut = len(one) - int(self.random.choice([0, 0, 1, 2, 9, 60, len(one)]))
        return (*one[: max(0, cut)], *self._new(int(self.random.integers(1, 40))))[: N_CTX - 60]

    def job(self) -> Job:
        kind = JOBS[int(self.random.integers(0, len(JOBS)))]
        tokens = int(self.random.integers(1, 40))
        return replace(kind, seed=int(self.random.integers(0, 1000)), max_tokens=tokens)

    def heard(self, tokens: tuple[int, ...]) -> None:
        self._known.append(tokens)

    def _new(self, count: int) -> tuple[int, ...]:
        return tuple(self.random.integers(0, 256, count).tolist())


@pytest.mark.parametrize(
    ("architecture", "layers", "beginning"),
    [
        ("qwen35", 1, CHECKPOINT - 30),
        ("qwen35", 0, CHECKPOINT - 30),
        ("hy_v3", 3, 700),
        ("llama", 0, 700),
    ],
)
def test_each_of_many_requests_says_what_it_would_say_alone(
    architecture: Architecture, layers: int, beginning: int, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    write_random_gguf(path, architecture, 7, width=32, depth=DEPTH, layers=layers)
    talk = Conversations(7, beginning)
    reused: list[int] = []
    accepted = given_up = 0

    with (
        bench(path, n_ctx=N_CTX) as plain,
        bench(path, n_ctx=N_CTX, speculation="always", lookup=True, parallel=3) as busy,
    ):
        for _ in range(36):
            prompt, job = talk.prompt(), talk.job()
            if talk.random.random() < 0.25:
                end = busy.say(prompt, job, After(int(talk.random.integers(0, 60))))
                given_up += end.ends[0] == "cancelled"
            said = busy.say(prompt, job)
            assert said == plain.cold(prompt, job)
            talk.heard(busy.loaded.memory.tokens)
            reused.append(said.usage.reused_tokens)
            accepted += said.usage.accepted_tokens

    assert sum(map(bool, reused)) > 15
    assert accepted > 0
    assert given_up > 3
    assert architecture != "qwen35" or CHECKPOINT in reused


@pytest.mark.parametrize(("architecture", "layers"), [("qwen35", 1), ("hy_v3", 1), ("hy_v3", 3)])
def test_a_head_that_was_not_asked_for_long_is_of_use_again(
    architecture: Architecture, layers: int, tmp_path: Path
) -> None:
    """What it missed is more than is kept for it, so there is a gap in what it knows."""
    path = tmp_path / "m.gguf"
    write_random_gguf(path, architecture, 7, width=32, depth=DEPTH, layers=layers)
    long = replace(SAMPLED, grammar="root ::= [a-f]{900}", max_tokens=850)
    with bench(path) as plain, bench(path, speculation="always", draft_max=3) as busy:
        pace, busy.loaded.decoder.pace = busy.loaded.decoder.pace, None
        missed = busy.say(b"A long one: ", long)
        busy.loaded.decoder.pace = pace
        prompt = (*missed.memory, *b" and on.")

        said = busy.say(prompt)

        assert missed == plain.say(b"A long one: ", long)
        assert said == plain.say(prompt)
        assert said.usage.reused_tokens == len(missed.memory)
        assert said.usage.accepted_tokens > 0
