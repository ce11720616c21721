"""Answers in the dialects of llama-server, vLLM and our own engine, and hostile ones."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.fake_server import ended, said, used
from veriloop_tui.core.chat import (
    CandidateEnded,
    ChatEvent,
    ChatFinished,
    MalformedCall,
    ReasoningDelta,
    TextDelta,
    Timings,
    ToolCall,
    ToolCalled,
    Usage,
)
from veriloop_tui.engine.client.answer import Answer
from veriloop_tui.engine.client.stream import GarbledError
from veriloop_tui.errors import EngineError


class Clock:
    """One second later at each look."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1
        return self.seconds


def read(*chunks: dict[str, Any], n: int = 1) -> list[ChatEvent]:
    answer = Answer(n, Clock())
    made = [event for chunk in chunks for event in answer.take(chunk)]
    return [*made, answer.finished()]


def usage(*chunks: dict[str, Any], n: int = 1) -> Usage:
    end = read(*chunks, n=n)[-1]
    assert isinstance(end, ChatFinished)
    return end.usage


def call(index: int, arguments: str, name: str = "", ident: str = "") -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    part = {"index": index, "function": function, **({"id": ident} if ident else {})}
    return said(None, tool_calls=[part])


def test_text_and_thinking_come_in_order_under_either_name() -> None:
    chunks = (said(None, reasoning_content="so"), said(None, reasoning="on"), said("yes"))
    assert read(*chunks, ended(), used())[:3] == [
        ReasoningDelta("so"),
        ReasoningDelta("on"),
        TextDelta("yes"),
    ]


def test_thinking_that_is_sent_under_both_names_counts_once() -> None:
    chunk = said(None, reasoning_content="so", reasoning="so")
    assert read(chunk, ended(), used())[:-1] == [ReasoningDelta("so")]


def test_candidates_end_one_by_one_and_the_first_ones_reason_is_the_answers() -> None:
    events = read(said("b", 1), said("a", 0), ended("length", 1), ended("stop", 0), used(), n=2)
    assert events[:-1] == [
        TextDelta("b", 1),
        TextDelta("a", 0),
        CandidateEnded(1, "length"),
        CandidateEnded(0, "stop"),
    ]
    assert isinstance(events[-1], ChatFinished)
    assert events[-1].finish_reason == "stop"


def test_a_candidate_that_never_ends_is_a_broken_answer() -> None:
    with pytest.raises(GarbledError, match="broke off"):
        read(said("a"), ended(), used(), n=2)


def test_llama_servers_usages_of_candidates_are_added_and_the_prompt_counts_once() -> None:
    one = used(32, 6, 24, timings={"draft_n": 4, "draft_n_accepted": 3, "prompt_ms": 9})
    other = used(32, 5, 31, timings={"draft_n": 2, "draft_n_accepted": 2, "prompt_ms": 8})
    total = usage(said("a"), ended(), one, ended(index=1), other, n=2)
    assert total == Usage(32, 11, 24, 6, 5)


def test_vllms_one_usage_is_that_of_all_candidates() -> None:
    assert usage(said("a"), ended(), ended(index=1), used(32, 11, 16), n=2) == Usage(32, 11, 16)


def test_our_own_engines_usage_that_comes_twice_counts_once() -> None:
    own = {"reused_tokens": 3, "drafted_tokens": 8, "accepted_tokens": 6}
    tokens = {"prompt_tokens": 5, "completion_tokens": 7, "veriloop": own}
    chunks = ({**ended(), "usage": tokens}, {"choices": [], "usage": tokens})
    assert usage(said("a"), *chunks) == Usage(5, 7, 3, 8, 6)


def test_a_usage_that_comes_only_with_the_last_choice_counts() -> None:
    tokens = {"prompt_tokens": 5, "completion_tokens": 7}
    assert usage(said("a"), {**ended(), "usage": tokens}) == Usage(5, 7, 0)


def test_an_answer_without_usage_cannot_be_budgeted() -> None:
    with pytest.raises(GarbledError, match="does not report"):
        read(said("a"), ended())


def test_timings_are_the_servers_or_else_measured_from_here() -> None:
    told = read(said("a"), ended(), used(timings={"prompt_ms": 3.5, "predicted_ms": 4}))[-1]
    assert isinstance(told, ChatFinished)
    assert told.timings == Timings(3.5, 4.0)

    measured = read(said("a"), ended(), used())[-1]
    assert isinstance(measured, ChatFinished)
    assert measured.timings == Timings(1000.0, 1000.0)


def test_a_call_of_a_tool_is_put_together_from_its_pieces() -> None:
    events = read(
        call(0, "", "weather", "c1"),
        call(0, '{"city":'),
        call(0, '"Paris"}'),
        call(1, "", "time", "c2"),
        ended("tool_calls"),
        used(),
    )
    assert events[:-1] == [
        ToolCalled(ToolCall("c1", "weather", '{"city":"Paris"}')),
        ToolCalled(ToolCall("c2", "time", "{}")),
    ]


@pytest.mark.parametrize(
    ("chunk", "problem"),
    [
        (call(0, '{"city":', "weather"), "the arguments of 'weather' are not a JSON object"),
        (call(0, "[1]", "weather"), "the arguments of 'weather' are not a JSON object"),
        (call(0, "{}"), "it names no tool"),
    ],
)
def test_a_call_that_cannot_be_made_is_told_and_not_fatal(
    chunk: dict[str, Any], problem: str
) -> None:
    (told, _) = read(chunk, ended("tool_calls"), used())
    assert isinstance(told, MalformedCall)
    assert told.problem == problem


def test_an_unknown_reason_to_end_is_a_plain_stop() -> None:
    end = read(said("a"), ended("eos"), used())[-1]
    assert isinstance(end, ChatFinished)
    assert end.finish_reason == "stop"


def test_text_that_no_file_can_hold_is_replaced() -> None:
    (piece, _) = read(said("a\ud800b"), ended(), used())
    assert piece == TextDelta("a?b")


@pytest.mark.parametrize("value", [-1, 1e999, float("nan"), True, "7", None, [], 10**400])
def test_a_count_that_is_none_counts_nothing(value: object) -> None:
    tokens = {"prompt_tokens": value, "completion_tokens": value}
    timings = {"prompt_ms": value, "predicted_ms": value}
    end = read(said("a"), ended(), {"choices": [], "usage": tokens, "timings": timings})[-1]
    assert isinstance(end, ChatFinished)
    assert (end.usage, end.timings) == (Usage(0, 0, 0), Timings(0.0, 0.0))


def test_calls_without_end_are_refused() -> None:
    with pytest.raises(GarbledError, match="without end"):
        read(*(call(index, "", "f") for index in range(10_000)))


JUNK = st.sampled_from(
    [None, True, -1, 3, 1.5, 1e999, "x", "\ud800", [], [1], {}, {"message": 1}, 10**400]
)


def shaped(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object of the protocol in which anything may be missing or wrong."""
    return st.fixed_dictionaries({}, optional={k: v | JUNK for k, v in fields.items()})


FUNCTION = shaped(name=JUNK, arguments=JUNK)
CALL = shaped(index=st.integers(-1, 2), id=JUNK, function=FUNCTION)
DELTA = shaped(content=JUNK, reasoning=JUNK, tool_calls=st.lists(CALL | JUNK, max_size=2))
REASON = st.sampled_from(["stop", "length", "tool_calls", "abort"])
CHOICE = shaped(index=st.integers(0, 2), delta=DELTA, finish_reason=REASON)
CHUNK = shaped(
    choices=st.lists(CHOICE | JUNK, max_size=2),
    usage=shaped(prompt_tokens=JUNK, completion_tokens=JUNK, veriloop=JUNK),
    timings=shaped(prompt_ms=JUNK, draft_n=JUNK),
    error=JUNK,
)


@given(st.lists(CHUNK, max_size=4))
def test_whatever_arrives_is_read_or_refused_by_a_typed_error(chunks: list[dict[str, Any]]) -> None:
    answer = Answer(2, Clock())
    with contextlib.suppress(GarbledError, EngineError):
        for chunk in chunks:
            for event in answer.take(chunk):
                assert getattr(event, "index", 0) in (0, 1)
        answer.finished()
