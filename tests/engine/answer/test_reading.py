from collections.abc import Sequence
from itertools import count

from hypothesis import example, given, settings
from hypothesis import strategies as st

from veriloop_tui.core.chat import (
    CandidateEnded,
    ChatEvent,
    ChatFinished,
    FinishReason,
    MalformedCall,
    ReasoningDelta,
    TextDelta,
    Timings,
    Tool,
    ToolCall,
    ToolCalled,
    Usage,
)
from veriloop_tui.engine.answer.reading import AnswerForm, Reading
from veriloop_tui.engine.answer.reasoning import DEFAULT_MARKERS, KNOWN_MARKERS

WEATHER = Tool("weather", "", '{"properties": {"city": {"type": "string"}}}')
PLAIN = AnswerForm(DEFAULT_MARKERS)
OPENED = AnswerForm(DEFAULT_MARKERS, opened=True)
TOOLS = AnswerForm(DEFAULT_MARKERS, tools=(WEATHER,))
OPENED_TOOLS = AnswerForm(DEFAULT_MARKERS, opened=True, tools=(WEATHER,))
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
XML_CALL = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n"
    "</function>\n</tool_call>"
)
SPENT = (Usage(1, 1, 0), Timings(0, 0))


def ended(reason: FinishReason = "stop") -> ChatFinished:
    return ChatFinished(reason, *SPENT)


def read(pieces: Sequence[str], form: AnswerForm, reason: FinishReason = "stop") -> list[ChatEvent]:
    """The events, with the text between two others in one piece."""
    numbers = count(1)
    reading = Reading(form, 1, lambda: f"call-{next(numbers)}")
    raw: list[ChatEvent] = [*(TextDelta(piece) for piece in pieces), ended(reason)]
    merged: list[ChatEvent] = []
    for event in (made for one in raw for made in reading.take(one)):
        last = merged[-1] if merged else None
        match event, last:
            case TextDelta(), TextDelta():
                merged[-1] = TextDelta(last.text + event.text)
            case ReasoningDelta(), ReasoningDelta():
                merged[-1] = ReasoningDelta(last.text + event.text)
            case _:
                merged.append(event)
    return merged


def called(number: int = 1) -> ToolCalled:
    return ToolCalled(ToolCall(f"call-{number}", "weather", '{"city": "Rome"}'))


def test_a_plain_answer_is_passed_on_exactly_and_at_once() -> None:
    reading = Reading(PLAIN, 1, str)

    assert reading.take(TextDelta("  \n")) == []
    assert reading.take(TextDelta("Hi \n")) == [TextDelta("  \nHi \n")]
    assert reading.take(TextDelta(" x <tool_call>")) == [TextDelta(" x <tool_call>")]
    assert reading.take(ended()) == [ended()]


def test_thinking_that_the_prompt_opened_is_told_apart_from_the_answer() -> None:
    assert read(["\nWell, 2 < 3.\n</think>\n\nYes.\n"], OPENED) == [
        ReasoningDelta("Well, 2 < 3."),
        TextDelta("Yes.\n"),
        ended(),
    ]


def test_thinking_that_the_model_opens_itself_is_told_apart_from_the_answer() -> None:
    for markers in KNOWN_MARKERS:
        text = f"\n{markers.start}\nhm\n{markers.end}\n\nYes"
        assert read([text], AnswerForm(markers)) == [
            ReasoningDelta("hm"),
            TextDelta("Yes"),
            ended(),
        ]


def test_markers_in_the_middle_of_an_answer_are_text() -> None:
    text = "The marker <think> opens and </think> closes."

    assert read([text], PLAIN) == [TextDelta(text), ended()]


def test_unfinished_thinking_is_reported_as_thinking() -> None:
    assert read(["so I must </thi"], OPENED, "length") == [
        ReasoningDelta("so I must </thi"),
        ended("length"),
    ]


def test_thinking_that_begins_again_is_read_too() -> None:
    assert read(["<think>a</think>b<think>"], PLAIN)[-2] == TextDelta("b<think>")
    assert read(["<think>a</think>\n<think>b</think>c"], PLAIN) == [
        ReasoningDelta("a\n\nb"),
        TextDelta("c"),
        ended(),
    ]


def test_calls_in_both_forms_are_read_outside_and_inside_the_thinking() -> None:
    text = f"First {CALL} then\n</think>\n\nNow:\n{XML_CALL}\n{CALL}\n"

    assert read([text], OPENED_TOOLS) == [
        ReasoningDelta("First"),
        called(1),
        ReasoningDelta(" then"),
        TextDelta("Now:"),
        called(2),
        called(3),
        ended("tool_calls"),
    ]


def test_without_tools_a_call_is_text() -> None:
    assert read([CALL], PLAIN) == [TextDelta(CALL), ended()]


def test_a_call_that_is_none_is_reported_and_its_text_is_kept() -> None:
    bad = '<tool_call>{"name": "weather", "arguments": {"city": "Rome",}}</tool_call>'

    events = read([f"Let me see. {bad} Done."], TOOLS)

    assert [event for event in events if not isinstance(event, MalformedCall)] == [
        TextDelta(f"Let me see.{bad}"),
        TextDelta(" Done."),
        ended("stop"),
    ]
    (malformed,) = (event for event in events if isinstance(event, MalformedCall))
    assert malformed.text == bad
    assert "not valid JSON" in malformed.problem


def test_a_malformed_call_does_not_hide_the_next_one() -> None:
    odd_quotes = '<tool_call>{"name": "weather, "arguments": {}}</tool_call>'

    events = read([odd_quotes, "\n", CALL], TOOLS)

    assert isinstance(events[1], MalformedCall)
    assert events[1].text == odd_quotes
    assert events[2:] == [called(), ended("tool_calls")]


def test_a_call_that_breaks_off_is_reported() -> None:
    events = read(["<tool_call>\n{", '"name": "wea'], TOOLS, "length")

    assert isinstance(events[1], MalformedCall)
    assert "not finished" in events[1].problem
    assert events[-1] == ended("length")


def test_a_whole_call_without_its_last_marker_is_a_call() -> None:
    for text in (CALL, XML_CALL):
        assert read([text.removesuffix("</tool_call>")], TOOLS) == [called(), ended("tool_calls")]


def test_a_bound_on_tokens_stays_the_reason_of_the_end() -> None:
    assert read([CALL, "And"], TOOLS, "length")[-1] == ended("length")


def test_candidates_are_read_each_by_itself() -> None:
    reading = Reading(TOOLS, 2, lambda: "id")
    raw: list[ChatEvent] = [
        TextDelta("<think>a", 0),
        TextDelta("<tool", 1),
        TextDelta("</think>b", 0),
        TextDelta(CALL.removeprefix("<tool"), 1),
        CandidateEnded(1, "stop"),
        CandidateEnded(0, "length"),
        ended("length"),
    ]

    events = [made for one in raw for made in reading.take(one)]

    assert events == [
        ReasoningDelta("a", 0),
        TextDelta("b", 0),
        ToolCalled(ToolCall("id", "weather", '{"city": "Rome"}'), 1),
        CandidateEnded(1, "tool_calls"),
        CandidateEnded(0, "length"),
        ended("length"),
    ]


PIECES = st.sampled_from(
    (
        *("<think>", "</think>", "<tool_call>", "</tool_call>", "<function=weather>"),
        *("</function>", "<parameter=city>", "</parameter>", '{"name": "weather", "arguments": '),
        *('{"city": "a"}', "{", "}", '"', "\\", "\n", " ", "<", "</", "<t", "x", CALL, XML_CALL),
    )
)
FORMS = st.sampled_from((PLAIN, OPENED, TOOLS, OPENED_TOOLS))


@given(st.lists(PIECES, max_size=14), FORMS, st.data())
@settings(max_examples=400, deadline=None)
def test_the_result_does_not_depend_on_how_the_text_is_cut(
    parts: list[str], form: AnswerForm, data: st.DataObject
) -> None:
    text = "".join(parts)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=12)))
    pieces = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert read(pieces, form) == read([text], form) == read(list(text), form)


@given(st.lists(PIECES, max_size=14), FORMS)
@example(["\n", " "], PLAIN)
@settings(max_examples=300, deadline=None)
def test_nothing_but_blanks_and_markers_is_lost(parts: list[str], form: AnswerForm) -> None:
    text = "".join(parts)
    events = read([text], form)
    if any(isinstance(event, ToolCalled) for event in events):
        return
    said = "".join(event.text for event in events if isinstance(event, TextDelta | ReasoningDelta))

    def bare(of: str) -> str:
        return "".join(of.replace("<think>", "").replace("</think>", "").split())

    assert bare(said) == bare(text)
