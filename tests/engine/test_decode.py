"""The decode loop on the real llama.cpp, in this process: the models are known to be sound."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from veriloop_tui.core.chat import ChatFinished, ChatRequest, Message, Sampling, TextDelta
from veriloop_tui.engine.decode import generate
from veriloop_tui.engine.gguf_read import read_header
from veriloop_tui.engine.llama import N_BATCH, Memory, Model, silence_logs
from veriloop_tui.errors import ContextTooLong, EngineRefused

GREEDY = ChatRequest((Message("user", ""),), Sampling(temperature=0.0), seed=1, max_tokens=40)
SAMPLED = replace(GREEDY, sampling=Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0))
N_CTX = 1536


def never() -> bool:
    return False


@dataclass
class After:
    """Cancels once it was asked more than `calls` times."""

    calls: int

    def __call__(self) -> bool:
        self.calls -= 1
        return self.calls < 0


class Bench:
    """A loaded model with a memory that can be warmed."""

    def __init__(self, path: Path) -> None:
        silence_logs()
        self.path = path
        self.model = Model(path, 0, lambda: True)
        self.memory = self.cold_memory()

    def cold_memory(self) -> Memory:
        return Memory(self.model, self.path, N_CTX, threads=1)

    def tokens(self, text: str) -> list[int]:
        return self.model.vocabulary.tokenise(text)

    def answer(
        self, prompt: str, request: ChatRequest = GREEDY, memory: Memory | None = None
    ) -> tuple[str, ChatFinished]:
        text = ""
        events = generate(
            memory or self.memory,
            self.model.vocabulary,
            self.tokens(prompt),
            request,
            never,
        )
        for event in events:
            if isinstance(event, ChatFinished):
                return text, event
            assert isinstance(event, TextDelta)
            text += event.text
        raise AssertionError("no last event")

    def cold_answer(self, prompt: str, request: ChatRequest = GREEDY) -> tuple[str, ChatFinished]:
        memory = self.cold_memory()
        try:
            return self.answer(prompt, request, memory)
        finally:
            memory.close()

    def close(self) -> None:
        self.memory.close()
        self.model.close()


@pytest.fixture
def llama(tiny_llama: Path) -> Iterator[Bench]:
    bench = Bench(tiny_llama)
    yield bench
    bench.close()


@pytest.fixture
def qwen(tiny_qwen: Path) -> Iterator[Bench]:
    bench = Bench(tiny_qwen)
    yield bench
    bench.close()


def test_the_same_seed_gives_the_same_text_and_another_seed_another(llama: Bench) -> None:
    first, _ = llama.answer("once upon a time", SAMPLED)
    again, _ = llama.answer("once upon a time", SAMPLED)
    other, _ = llama.answer("once upon a time", replace(SAMPLED, seed=2))

    assert first == again
    assert first != other


def test_seeds_of_any_size_are_accepted(llama: Bench) -> None:
    for seed in (0, -1, 2**32 - 1, 2**64 + 5):
        first, _ = llama.answer("x", replace(SAMPLED, seed=seed))
        assert first == llama.answer("x", replace(SAMPLED, seed=seed))[0]


def test_a_shared_prefix_is_reused_and_the_greedy_answer_stays_the_same(llama: Bench) -> None:
    base = "a fixed prefix of some length, " * 10
    llama.answer(base + "first question")

    text, end = llama.answer(base + "second question")

    assert end.usage.reused_tokens == len(base)
    assert text == llama.cold_answer(base + "second question")[0]


def test_the_answer_itself_is_reused_by_the_next_turn(llama: Bench) -> None:
    prompt = llama.tokens("tell me")
    # Token ids, since the noise that this model says is not UTF-8.
    *_, end = generate(llama.memory, llama.model.vocabulary, prompt, GREEDY, never)
    assert isinstance(end, ChatFinished)

    reused = llama.memory.keep([*llama.memory.tokens, 65])

    assert reused == len(prompt) + end.usage.completion_tokens - 1


def test_the_same_prompt_again_evaluates_one_token(llama: Bench) -> None:
    first, _ = llama.answer("the very same prompt")

    again, end = llama.answer("the very same prompt")

    assert end.usage.evaluated_tokens == 1
    assert again == first


def test_a_hybrid_memory_is_reused_where_it_is_wholly_a_prefix(qwen: Bench) -> None:
    prompt = "a conversation that only grows. " * 5
    qwen.answer(prompt, replace(GREEDY, max_tokens=1))

    text, end = qwen.answer(prompt + "and goes on")

    assert end.usage.reused_tokens == len(prompt)
    assert text == qwen.cold_answer(prompt + "and goes on")[0]


@pytest.mark.parametrize("second", ["a shared beginning, another end", "a shared beginning, then"])
def test_a_hybrid_memory_that_would_have_to_be_cut_back_starts_afresh(
    qwen: Bench, second: str
) -> None:
    qwen.answer("a shared beginning, then something", replace(GREEDY, max_tokens=5))

    text, end = qwen.answer(second)

    assert end.usage.reused_tokens == 0
    assert text == qwen.cold_answer(second)[0]


def test_a_prompt_longer_than_a_batch_is_evaluated_whole(llama: Bench) -> None:
    prompt = "x" * (2 * N_BATCH + 3)

    text, end = llama.answer(prompt)

    assert end.usage.prompt_tokens == len(prompt)
    assert text == llama.cold_answer(prompt)[0]


def test_max_tokens_bounds_the_answer(llama: Bench) -> None:
    _, end = llama.answer("hello", replace(GREEDY, max_tokens=3))

    assert (end.finish_reason, end.usage.completion_tokens) == ("length", 3)


def test_a_full_context_ends_the_answer_with_length(llama: Bench) -> None:
    prompt = "y" * (N_CTX - 4)

    _, end = llama.answer(prompt, replace(GREEDY, max_tokens=100))

    assert end.finish_reason == "length"
    assert end.usage.prompt_tokens + end.usage.completion_tokens == N_CTX + 1
    assert llama.answer("still works")[1].finish_reason in ("stop", "length")


def test_a_prompt_that_fills_the_context_is_refused_before_it_is_evaluated(llama: Bench) -> None:
    llama.answer("kept in memory")

    with pytest.raises(ContextTooLong) as caught:
        llama.answer("y" * N_CTX)

    assert (caught.value.n_prompt, caught.value.n_ctx) == (N_CTX, N_CTX)
    assert llama.answer("kept in memory")[1].usage.evaluated_tokens == 1


def test_an_empty_prompt_is_refused(llama: Bench) -> None:
    with pytest.raises(EngineRefused):
        llama.answer("")


@pytest.mark.parametrize("calls", [0, 1, 5, 60, 100])
def test_after_a_cancel_anywhere_the_next_answer_is_as_from_a_cold_start(
    llama: Bench, qwen: Bench, calls: int
) -> None:
    for bench in (llama, qwen):
        prompt = "a long prompt in several batches " * 40
        tokens = bench.tokens(prompt)

        *_, end = generate(bench.memory, bench.model.vocabulary, tokens, GREEDY, After(calls))

        assert isinstance(end, ChatFinished)
        assert end.finish_reason == "cancelled"
        assert bench.answer(prompt)[0] == bench.cold_answer(prompt)[0]


def test_a_request_cancelled_before_it_began_leaves_the_memory_alone(llama: Bench) -> None:
    llama.answer("worth keeping")

    list(generate(llama.memory, llama.model.vocabulary, [65], GREEDY, After(0)))

    assert llama.answer("worth keeping")[1].usage.evaluated_tokens == 1


@pytest.mark.parametrize("request_", [GREEDY, SAMPLED])
def test_weights_that_are_no_numbers_end_in_an_error_instead_of_noise(
    tiny_llama: Path, tmp_path: Path, request_: ChatRequest
) -> None:
    data = bytearray(tiny_llama.read_bytes())
    with tiny_llama.open("rb") as file:
        header = read_header(file, len(data))
    (norm,) = (one for one in header.tensors if one.name == "output_norm.weight")
    at = header.data_start + norm.offset
    data[at : at + 4 * norm.elements] = struct.pack("<f", float("nan")) * norm.elements
    (tmp_path / "nan.gguf").write_bytes(data)
    bench = Bench(tmp_path / "nan.gguf")

    with pytest.raises(EngineRefused, match="no numbers"):
        bench.answer("hello", request_)

    bench.close()


def test_a_repeat_penalty_changes_what_greedy_decoding_says(llama: Bench) -> None:
    penalised = replace(GREEDY, sampling=Sampling(temperature=0.0, repeat_penalty=5.0))

    assert llama.answer("abcabcabc", penalised)[0] != llama.answer("abcabcabc")[0]


def test_the_text_is_the_same_however_it_is_streamed(llama: Bench) -> None:
    prompt = llama.tokens("stream")
    events = list(generate(llama.memory, llama.model.vocabulary, prompt, GREEDY, never))

    deltas = [event.text for event in events if isinstance(event, TextDelta)]

    assert "".join(deltas) == llama.answer("stream")[0]
    assert all(deltas)
