"""The decode loop on the real llama.cpp, in this process: the models are known to be sound."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.scripted_gguf import write_scripted_gguf
from veriloop_tui.core.chat import (
    CandidateEnded,
    ChatEvent,
    ChatFinished,
    FinishReason,
    Sampling,
    TextDelta,
)
from veriloop_tui.engine.decoding.batch import N_BATCH
from veriloop_tui.engine.decoding.decode import Decoder
from veriloop_tui.engine.decoding.llama import Model, silence_logs
from veriloop_tui.engine.decoding.memory import Cancelled, Memory, Shape
from veriloop_tui.engine.gguf.read import read_header
from veriloop_tui.engine.job import Job, ThinkingBounds
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import ContextTooLong, EngineRefused

GREEDY = Job((), "", Sampling(temperature=0.0), seed=1, max_tokens=40)
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
    """A loaded model with a decoder whose memory can be warmed."""

    def __init__(self, path: Path) -> None:
        silence_logs()
        self.settings = LoadSettings(path)
        self.model = Model(path, self.settings, lambda: True, heads=False)
        self.decoder = self.cold()

    @property
    def memory(self) -> Memory:
        return self.decoder.memory

    def cold(self) -> Decoder:
        shape = Shape(N_CTX, threads=1, sequences=3)
        return Decoder(Memory(self.model, self.settings, shape), self.model.vocabulary)

    def tokens(self, text: str) -> tuple[int, ...]:
        return tuple(self.model.vocabulary.tokenise(text))

    def run(self, prompt: str, job: Job = GREEDY, cancelled: Cancelled = never) -> list[ChatEvent]:
        return list(self.decoder.run(replace(job, prompt=self.tokens(prompt)), cancelled))

    def answer(self, prompt: str, job: Job = GREEDY) -> tuple[str, ChatFinished]:
        return told(self.run(prompt, job))

    def cold_answer(self, prompt: str, job: Job = GREEDY) -> tuple[str, ChatFinished]:
        decoder = self.cold()
        try:
            return told(list(decoder.run(replace(job, prompt=self.tokens(prompt)), never)))
        finally:
            decoder.close()

    def close(self) -> None:
        self.decoder.close()
        self.model.close()


def told(events: list[ChatEvent], index: int = 0) -> tuple[str, ChatFinished]:
    """A candidate's text, and the last event."""
    deltas = [e.text for e in events if isinstance(e, TextDelta) and e.index == index]
    assert isinstance(events[-1], ChatFinished)
    return "".join(deltas), events[-1]


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
    _, end = llama.answer("tell me")

    # Token ids, since the noise that this model says is not UTF-8.
    reused = llama.memory.keep([*llama.memory.tokens, 65])

    assert reused == len("tell me") + end.usage.completion_tokens - 1


@pytest.mark.parametrize("kind", ["llama", "qwen"])
def test_the_same_prompt_again_evaluates_one_token(
    kind: str, request: pytest.FixtureRequest
) -> None:
    bench: Bench = request.getfixturevalue(kind)
    first, _ = bench.answer("the very same prompt")

    again, end = bench.answer("the very same prompt")

    assert end.usage.evaluated_tokens == 1
    assert again == first


def test_a_hybrid_memory_is_reused_where_it_is_wholly_a_prefix(qwen: Bench) -> None:
    prompt = "a conversation that only grows. " * 5
    qwen.answer(prompt, replace(GREEDY, max_tokens=1))

    text, end = qwen.answer(prompt + "and goes on")

    assert end.usage.reused_tokens == len(prompt)
    assert text == qwen.cold_answer(prompt + "and goes on")[0]


def test_a_hybrid_memory_that_has_nowhere_to_go_back_to_starts_afresh(qwen: Bench) -> None:
    qwen.answer("a shared beginning, then something", replace(GREEDY, max_tokens=5))

    text, end = qwen.answer("a shared beginning, another end")

    assert end.usage.reused_tokens == 0
    assert text == qwen.cold_answer("a shared beginning, another end")[0]


def test_a_hybrid_memory_goes_back_to_where_two_prompts_parted(qwen: Bench) -> None:
    base = "a shared beginning, "
    qwen.answer(base + "then something", replace(GREEDY, max_tokens=5))
    qwen.answer(base + "another end", replace(GREEDY, max_tokens=5))

    text, end = qwen.answer(base + "for the third time")

    assert end.usage.reused_tokens == len(base)
    assert text == qwen.cold_answer(base + "for the third time")[0]


def test_a_hybrid_memory_goes_back_to_the_end_of_the_prompt_when_its_answer_is_dropped(
    qwen: Bench,
) -> None:
    prompt = "a conversation whose answer is retold: "
    qwen.answer(prompt, replace(GREEDY, max_tokens=9))

    text, end = qwen.answer(prompt + "in other words")

    assert end.usage.reused_tokens == len(prompt) - 1
    assert text == qwen.cold_answer(prompt + "in other words")[0]


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

        _, end = told(bench.run(prompt, cancelled=After(calls)))

        assert end.finish_reason == "cancelled"
        assert bench.answer(prompt)[0] == bench.cold_answer(prompt)[0]


def test_a_request_cancelled_before_it_began_leaves_the_memory_alone(llama: Bench) -> None:
    llama.answer("worth keeping")

    llama.run("A", cancelled=After(0))

    assert llama.answer("worth keeping")[1].usage.evaluated_tokens == 1


@pytest.mark.parametrize("request_", [GREEDY, SAMPLED])
def test_weights_that_are_no_numbers_end_in_an_error_instead_of_noise(
    tiny_llama: Path, tmp_path: Path, request_: Job
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


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("kind", ["llama", "qwen"])
def test_each_of_several_candidates_says_what_it_would_say_alone(
    n: int, kind: str, request: pytest.FixtureRequest
) -> None:
    bench: Bench = request.getfixturevalue(kind)
    events = bench.run("several ways to go on", replace(SAMPLED, n=n))

    ends = {e.index: e.finish_reason for e in events if isinstance(e, CandidateEnded)}
    alone = [
        bench.cold_answer("several ways to go on", replace(SAMPLED, seed=SAMPLED.seed + i))
        for i in range(n)
    ]
    assert [told(events, i)[0] for i in range(n)] == [text for text, _ in alone]
    assert ends == {i: end.finish_reason for i, (_, end) in enumerate(alone)}
    usage = told(events)[1].usage
    assert usage.completion_tokens == sum(end.usage.completion_tokens for _, end in alone)


def test_candidates_share_what_is_left_of_the_context(llama: Bench) -> None:
    events = llama.run("z" * (N_CTX - 30), replace(GREEDY, n=3, max_tokens=100))

    reasons: list[FinishReason] = [e.finish_reason for e in events if isinstance(e, CandidateEnded)]
    assert reasons == ["length"] * 3
    assert told(events)[1].usage.completion_tokens == 3 * 11


def test_after_several_candidates_the_next_answer_is_as_from_a_cold_start(
    llama: Bench, qwen: Bench
) -> None:
    for bench in (llama, qwen):
        bench.run("several, then one", replace(SAMPLED, n=3))

        assert bench.answer("several, then one")[0] == bench.cold_answer("several, then one")[0]


def test_a_grammar_holds_whatever_the_model_would_say(llama: Bench) -> None:
    job = replace(SAMPLED, grammar='root ::= "yes" | "no, never"')

    answers = {llama.answer("well?", replace(job, seed=seed))[0] for seed in range(12)}

    assert answers <= {"yes", "no, never"}


def test_a_grammar_that_is_not_valid_is_refused_and_the_next_request_works(llama: Bench) -> None:
    with pytest.raises(EngineRefused, match="GBNF"):
        llama.answer("well?", replace(GREEDY, grammar="root ::= ("))

    assert llama.answer("well?")[1].usage.completion_tokens > 0


def test_thinking_that_reaches_its_bound_is_closed_and_an_answer_follows(tmp_path: Path) -> None:
    bench = Bench(write_scripted_gguf(tmp_path / "m.gguf", {}, "<think>" + "hm, " * 50))
    bounds = ThinkingBounds("<think>", "</think>", tokens=5, closing="\n</think>\n\n")

    text, end = bench.answer("so?", replace(GREEDY, thinking=bounds, max_tokens=60))

    thought, _, answer = text.partition("\n</think>\n\n")
    assert thought.startswith("<think>hm, ")
    assert len(thought) < 40
    assert answer
    assert end.usage.completion_tokens == 60
    bench.close()


def test_a_marker_in_the_middle_of_an_answer_is_text_and_begins_no_thinking(tmp_path: Path) -> None:
    said = "the tag <think> opens it" + " and on it goes" * 10
    bench = Bench(write_scripted_gguf(tmp_path / "m.gguf", {}, said))
    bounds = ThinkingBounds("<think>", "</think>", tokens=3, closing="</think>")

    text, _ = bench.answer("so?", replace(GREEDY, thinking=bounds, max_tokens=200))

    assert text == said
    bench.close()


def test_a_grammar_waits_for_the_end_of_thinking(tmp_path: Path) -> None:
    bench = Bench(write_scripted_gguf(tmp_path / "m.gguf", {}, "hm, well</think> so it is"))
    job = replace(SAMPLED, grammar='root ::= "{}"', lazy_after="</think>")

    text, _ = bench.answer("so?", job)

    assert text.startswith("hm, well</think>")
    assert text.endswith("{}")
    bench.close()


def test_the_text_is_the_same_however_it_is_streamed(llama: Bench) -> None:
    events = llama.run("stream")

    deltas = [event.text for event in events if isinstance(event, TextDelta)]

    assert "".join(deltas) == llama.answer("stream")[0]
