"""Going back in a memory: what is exact, and what llama.cpp would do wrongly without a word.

The models are random, so a wrong state shows in the next logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.by_hand import Native
from tests.models.noise import write_random_gguf
from veriloop_tui.engine.decoding.batch import N_BATCH
from veriloop_tui.engine.decoding.llama import Model, silence_logs
from veriloop_tui.engine.decoding.memory import Memory, Shape
from veriloop_tui.engine.decoding.native import api
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import EngineRefused

N_CTX = 2048
K = 4
PROMPT = tuple(b"A prompt of a few tokens, then some. ")
MORE = tuple(b"abcdefgh")
ROUNDING = (
    1e-4  # of sums in another order, for logits of deviation 3; a wrong state moves them by 1
)

Logits = NDArray[np.float32]


def never() -> bool:
    return False


@dataclass
class Abort:
    """Cancels once it was asked more than `calls` times, and from then on."""

    calls: int

    def __call__(self) -> bool:
        self.calls -= 1
        return self.calls < 0


class Pair:
    """A memory under test, and a second one that is always evaluated afresh."""

    def __init__(self, path: Path) -> None:
        silence_logs()
        settings = LoadSettings(path, type_k="f32", type_v="f32", flash_attention="off")
        self.model = Model(path, settings, lambda: True, heads=False)
        self.memory = Memory(self.model, settings, Shape(N_CTX, 1, sequences=3, rollback=K))
        self._fresh = Memory(self.model, settings, Shape(N_CTX, 1))

    def put(self, tokens: Sequence[int]) -> None:
        """Evaluate a prompt in batches, as prefill does."""
        for at in range(0, len(tokens), N_BATCH):
            assert self.memory.prefill(tokens[at : at + N_BATCH], never)

    def assert_as_if_fresh(self) -> None:
        """What comes next is what it would be if nothing had ever been taken back."""
        assert self.positions() == len(self.memory)
        self.memory.advance((77,))
        assert np.abs(self.memory.logits(0) - self._truth(self.memory.tokens)).max() < ROUNDING

    def positions(self) -> int:
        """How many tokens llama.cpp says that sequence 0 holds."""
        handle: Any = api.llama_get_memory(self.memory.context)
        return int(api.llama_memory_seq_pos_max(handle, 0)) + 1

    def close(self) -> None:
        self.memory.close()
        self._fresh.close()
        self.model.close()

    def _truth(self, tokens: Sequence[int]) -> Logits:
        self._fresh.clear()
        for at in range(0, len(tokens), N_BATCH):
            assert self._fresh.prefill(tokens[at : at + N_BATCH], never)
        return self._fresh.logits(-1)


@pytest.fixture
def hybrid(tiny_qwen: Path) -> Iterator[Pair]:
    pair = Pair(tiny_qwen)
    yield pair
    pair.close()


@pytest.fixture
def attention(tiny_llama: Path) -> Iterator[Pair]:
    pair = Pair(tiny_llama)
    yield pair
    pair.close()


@pytest.fixture(params=["hybrid", "attention"])
def pair(request: pytest.FixtureRequest) -> Pair:
    made: Pair = request.getfixturevalue(request.param)
    return made


@pytest.mark.parametrize("evaluated", range(1, K + 2))
def test_taking_back_fewer_tokens_than_the_last_batch_had_is_exact(
    pair: Pair, evaluated: int
) -> None:
    pair.put(PROMPT)
    for count in range(evaluated):
        pair.memory.advance(MORE[:evaluated])

        pair.memory.take_back(count)

        assert pair.memory.tokens[-evaluated + count :] == MORE[: evaluated - count]
        pair.assert_as_if_fresh()


def test_a_take_back_after_each_of_many_batches_stays_exact(pair: Pair) -> None:
    random = np.random.default_rng(3)
    pair.put(PROMPT)
    for _ in range(40):
        size = int(random.integers(1, K + 2))
        pair.memory.advance(random.integers(0, 256, size).tolist())
        pair.memory.take_back(int(random.integers(0, size)))

    pair.assert_as_if_fresh()


def test_llama_cpp_takes_back_a_whole_batch_of_recurrent_state_and_is_wrong(
    tmp_path: Path,
) -> None:
    """The reason for the guard: it says that it worked. Should this fail, the guard can go."""
    model = write_random_gguf(tmp_path / "m.gguf", "qwen35", 7)
    used, fresh = (Native(model, heads=False, draft=False, rollback=k) for k in (K, 0))
    used.evaluate(PROMPT, 0)
    used.evaluate([1, 2], len(PROMPT))

    assert used.cut(len(PROMPT))

    wrong = used.evaluate([77], len(PROMPT))[0]
    assert np.abs(wrong - fresh.evaluate([*PROMPT, 77], 0)[-1]).max() > 0.5
    used.close()
    fresh.close()


@pytest.mark.parametrize(("evaluated", "count"), [(1, 1), (2, 2), (2, 3), (K + 3, K + 1)])
def test_more_than_a_recurrent_memory_can_take_back_is_refused_and_leaves_it_empty(
    hybrid: Pair, evaluated: int, count: int
) -> None:
    hybrid.put(PROMPT)
    hybrid.memory.advance(MORE[: min(evaluated, K + 1)])
    if evaluated > K + 1:
        hybrid.memory.advance(MORE[:1])

    with pytest.raises(EngineRefused, match="cannot be taken back"):
        hybrid.memory.take_back(count)

    assert hybrid.memory.tokens == ()
    hybrid.put(PROMPT)
    hybrid.assert_as_if_fresh()


def test_a_recurrent_memory_takes_back_once_for_each_evaluation(hybrid: Pair) -> None:
    hybrid.put(PROMPT)
    hybrid.memory.advance(MORE[:4])
    hybrid.memory.take_back(1)

    with pytest.raises(EngineRefused):
        hybrid.memory.take_back(1)

    assert hybrid.memory.tokens == ()


def test_a_prompt_is_not_taken_back_from_a_recurrent_memory(hybrid: Pair) -> None:
    hybrid.put(PROMPT)

    with pytest.raises(EngineRefused):
        hybrid.memory.take_back(1)


def test_a_memory_of_attention_takes_back_whatever_it_holds(attention: Pair) -> None:
    attention.put(PROMPT)
    attention.memory.advance(MORE[:2])

    attention.memory.take_back(2 + 5)

    assert attention.memory.tokens == PROMPT[:-5]
    attention.assert_as_if_fresh()
    with pytest.raises(EngineRefused):
        attention.memory.take_back(len(PROMPT))


def test_a_checkpoint_comes_back_exactly_and_as_often_as_wanted(hybrid: Pair) -> None:
    hybrid.put(PROMPT)
    hybrid.memory.checkpoint()
    for size in (1, K + 1, 3):
        hybrid.memory.advance(MORE[:size])
        hybrid.put(MORE)

        assert hybrid.memory.keep((*PROMPT, 1)) == len(PROMPT)
        hybrid.assert_as_if_fresh()


def test_the_best_of_several_checkpoints_comes_back_and_later_ones_are_forgotten(
    hybrid: Pair,
) -> None:
    marks = (10, 20, 30)
    for before, mark in zip((0, *marks), marks, strict=False):
        hybrid.put(PROMPT[before:mark])
        hybrid.memory.checkpoint()

    assert hybrid.memory.keep((*PROMPT[:27], 1, 2)) == 20
    hybrid.put(MORE)
    assert [one.position for one in hybrid.memory.checkpoints.kept] == [10, 20]
    hybrid.assert_as_if_fresh()

    assert hybrid.memory.keep((*PROMPT[:15], 1)) == 10
    hybrid.assert_as_if_fresh()


def test_nothing_comes_back_into_a_memory_that_was_emptied(hybrid: Pair) -> None:
    hybrid.put(PROMPT)
    hybrid.memory.checkpoint()
    hybrid.memory.clear()
    assert hybrid.memory.keep((*PROMPT, 1)) == 0
    other = PROMPT[::-1] * 2
    hybrid.put(other)

    assert hybrid.memory.keep((*other[:-5], 1)) == 0

    hybrid.put(other)
    hybrid.assert_as_if_fresh()


def test_after_a_checkpoint_came_back_no_token_of_before_it_can_be_taken_back(
    hybrid: Pair,
) -> None:
    hybrid.put(PROMPT)
    hybrid.memory.checkpoint()
    hybrid.memory.advance(MORE[:3])
    assert hybrid.memory.keep((*PROMPT, 1)) == len(PROMPT)

    with pytest.raises(EngineRefused):
        hybrid.memory.take_back(1)


@pytest.mark.parametrize("marked", [False, True])
def test_after_an_abort_anywhere_in_a_prompt_what_is_left_is_a_prefix_and_exact(
    pair: Pair, marked: bool
) -> None:
    long = tuple(np.random.default_rng(1).integers(0, 256, N_BATCH).tolist())
    cut_short = 0
    for calls in range(0, 200, 25):
        pair.memory.clear()
        pair.put(PROMPT)
        if marked:
            pair.memory.checkpoint()
        if not pair.memory.prefill(long, Abort(calls)):
            cut_short += 1
            left = pair.memory.tokens
            assert left in ((), PROMPT)
            assert not marked or left == PROMPT
        pair.assert_as_if_fresh() if len(pair.memory) else pair.put(PROMPT)
    assert cut_short > 2


def test_candidates_leave_sequence_0_as_it_would_be_alone(pair: Pair) -> None:
    pair.put(PROMPT)
    pair.memory.fork(3)
    pair.memory.advance_each([(0, 65), (1, 66), (2, 67)])
    pair.memory.end(1)
    pair.memory.advance_each([(0, 68), (2, 69)])
    pair.memory.end(2)

    assert pair.memory.tokens == (*PROMPT, 65, 68)
    assert pair.memory.used == len(PROMPT) + 2
    pair.assert_as_if_fresh()


def test_positions_have_no_gap_after_everything_that_can_happen(pair: Pair) -> None:
    """llama.cpp accepts gaps in silence."""
    random = np.random.default_rng(5)
    pair.put(PROMPT)
    pair.memory.checkpoint()
    for _ in range(60):
        match int(random.integers(0, 5)):
            case 0:
                pair.memory.advance(MORE[:3])
                pair.memory.take_back(int(random.integers(0, 3)))
            case 1:
                pair.memory.prefill(MORE, Abort(int(random.integers(0, 30))))
            case 2:
                cut = int(random.integers(1, 60))
                pair.memory.keep((*pair.memory.tokens[:cut], 1))
            case 3 if len(pair.memory):
                pair.memory.fork(2)
                pair.memory.advance_each([(0, 1), (1, 2)])
                pair.memory.end(1)
            case _:
                pair.memory.checkpoint()
        assert pair.positions() == len(pair.memory)

    pair.assert_as_if_fresh()
