from dataclasses import replace
from typing import Any

import pytest

from veriloop_tui.core.chat import (
    ChatRequest,
    Grammar,
    JsonSchema,
    Message,
    Sampling,
    Tool,
)
from veriloop_tui.engine.answer.prepare import TextRequest, answer_form, prepare, prepare_text
from veriloop_tui.engine.answer.template import ChatTemplate
from veriloop_tui.engine.job import Job, ThinkingBounds
from veriloop_tui.errors import ContextTooLong, EngineRefused

PLAIN = "{% for m in messages %}[{{ m.content }}]{% endfor %}:"
OPENING = PLAIN + "{% if enable_thinking is not false %}<think>{% else %}<think></think>{% endif %}"
# Knows of thinking, and leaves it to the model to begin.
KNOWING = PLAIN + "{% if false %}<think></think>{% endif %}"
TOOLS = PLAIN + '{% if tools %}{{ tools | tojson }}<tool_call>{"name"{% endif %}'
CLOSING = "\n</think>\n\n"
LOOK = Tool("look", "", '{"properties": {"n": {"type": "integer"}}, "required": ["n"]}')
TAKE = Tool("take", "", "{}")
ASKED = ChatRequest((Message("user", "Hi"),), Sampling(), seed=3, max_tokens=1000)


def job(source: str, request: ChatRequest = ASKED, n_ctx: int = 5000) -> Job:
    """The job, with one token per character."""
    return prepare(request, ChatTemplate(source, "", ""), tokens, n_ctx)


def tokens(text: str) -> list[int]:
    return [ord(char) for char in text]


def test_what_was_asked_for_reaches_the_decode_loop() -> None:
    made = job(PLAIN, replace(ASKED, stop=("x",), n=3))

    assert made.text == "[Hi]:"
    assert list(made.prompt) == tokens("[Hi]:")
    assert (made.seed, made.max_tokens, made.stop, made.n) == (3, 1000, ("x",), 3)
    assert (made.grammar, made.lazy_after, made.thinking) == ("", "", None)


def test_a_prompt_must_leave_room_for_a_token() -> None:
    assert job(PLAIN, n_ctx=6).prompt
    with pytest.raises(ContextTooLong) as caught:
        job(PLAIN, n_ctx=5)

    assert (caught.value.n_prompt, caught.value.n_ctx) == (5, 5)


def test_a_prompt_without_tokens_is_refused() -> None:
    with pytest.raises(EngineRefused, match="empty"):
        job("{{ messages[9] }}")


@pytest.mark.parametrize(
    ("changes", "n_ctx", "allowed"),
    [
        ({}, 5000, 750),
        ({"thinking_tokens": 20}, 5000, 20),
        ({"max_tokens": 1 << 31}, 1012, 750),
        ({"max_tokens": 1 << 31, "n": 4}, 1012, 187),
        ({"max_tokens": 20}, 5000, 8),
    ],
)
def test_thinking_leaves_room_for_the_answer(
    changes: dict[str, Any], n_ctx: int, allowed: int
) -> None:
    made = job(OPENING, replace(ASKED, **changes), n_ctx)

    assert made.thinking == ThinkingBounds("<think>", "</think>", allowed, CLOSING, opened=True)


@pytest.mark.parametrize("changes", [{"thinking_tokens": 0}, {"max_tokens": 5}])
def test_where_there_is_no_room_to_think_the_prompt_closes_the_thinking(
    changes: dict[str, Any],
) -> None:
    made = job(OPENING, replace(ASKED, **changes))

    assert made.text == f"[Hi]:<think>{CLOSING}"
    assert list(made.prompt) == tokens(made.text)
    assert made.thinking is None
    with pytest.raises(ContextTooLong):
        job(OPENING, replace(ASKED, **changes), n_ctx=14)


def test_thinking_that_the_model_may_begin_is_bounded_too() -> None:
    made = job(KNOWING)

    assert made.thinking is not None
    assert (made.thinking.opened, made.thinking.tokens) == (False, 750)
    none = job(KNOWING, replace(ASKED, thinking_tokens=0)).thinking
    assert none is not None
    assert none.tokens == 1


@pytest.mark.parametrize("source", [OPENING, KNOWING])
def test_thinking_that_is_switched_off_has_no_bounds(source: str) -> None:
    assert (
        job(source, replace(ASKED, template_values=(("enable_thinking", False),))).thinking is None
    )


def test_thinking_that_is_continued_is_open() -> None:
    for last in (Message("assistant", "<think>hm"), Message("assistant", "", reasoning="hm")):
        request = replace(ASKED, messages=(*ASKED.messages, last), continue_final_message=True)
        made = job(KNOWING, request)

        assert made.text.endswith("hm")
        assert made.thinking is not None
        assert made.thinking.opened
        assert answer_form(request, ChatTemplate(KNOWING, "", ""), made).opened


def test_an_answer_that_is_continued_is_not_thinking() -> None:
    last = Message("assistant", "Yes, ")
    made = job(
        OPENING, replace(ASKED, messages=(*ASKED.messages, last), continue_final_message=True)
    )

    assert made.text == f"[Hi]:<think>{CLOSING}Yes, "
    assert made.thinking is not None
    assert not made.thinking.opened


def test_a_structure_holds_for_the_answer_not_for_the_thinking() -> None:
    asked = replace(ASKED, structure=Grammar('root ::= "yes"'))

    assert job(PLAIN, asked).grammar == 'root ::= "yes"'
    assert job(PLAIN, asked).lazy_after == ""
    assert job(OPENING, asked).lazy_after == "</think>"
    assert job(OPENING, replace(asked, thinking_tokens=0)).lazy_after == ""


def test_a_schema_becomes_a_grammar() -> None:
    made = job(PLAIN, replace(ASKED, structure=JsonSchema('{"const": "a"}')))

    assert '"\\x22a\\x22"' in made.grammar


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"structure": Grammar("root ::= root")}, "begins with itself"),
        ({"structure": JsonSchema('{"not": {"const": 1}}')}, "'not'"),
        ({"structure": JsonSchema("{}"), "tools": (LOOK,)}, "cannot both"),
        ({"must_call": ("look",), "tools": (TAKE,)}, "not among the tools"),
        ({"must_call": ("look",)}, "not among the tools"),
        (
            {"must_call": ("take",), "tools": (replace(TAKE, parameters='{"not": {}, "if": 1}'),)},
            "the tool 'take': schema: #: 'if'",
        ),
    ],
)
def test_what_cannot_be_held_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(EngineRefused, match=reason) as caught:
        job(TOOLS, replace(ASKED, **changes))

    assert caught.value.status == 400


def test_tools_are_rendered_and_read() -> None:
    request = replace(ASKED, tools=(LOOK,))
    made = job(TOOLS, request)

    assert '"name": "look"' in made.text
    assert made.grammar == ""
    assert answer_form(request, ChatTemplate(TOOLS, "", ""), made).tools == (LOOK,)


def test_a_tool_that_must_be_called_makes_a_grammar() -> None:
    one = job(TOOLS, replace(ASKED, tools=(LOOK, TAKE), must_call=("look",))).grammar
    both = job(TOOLS, replace(ASKED, tools=(LOOK, TAKE), must_call=("look", "take"))).grammar

    assert "look" in one
    assert "take" not in one
    assert "take" in both


def test_a_text_is_completed_as_it_is() -> None:
    made = prepare_text(TextRequest("<think>a", Sampling(), 1, 5), tokens, 999, 100)

    assert (made.text, list(made.prompt), made.thinking) == ("<think>a", tokens("<think>a"), None)


def test_tokens_are_completed_as_they_are() -> None:
    made = prepare_text(TextRequest((5, 0, 9), Sampling(), 1, 5), tokens, 10, 100)

    assert made.prompt == (5, 0, 9)
    # Another prompt must not be taken for one that begins with these tokens.
    assert made.text.startswith("\0")


@pytest.mark.parametrize("wrong", [(10,), (-1,), ()])
def test_tokens_that_the_model_does_not_have_are_refused(wrong: tuple[int, ...]) -> None:
    with pytest.raises(EngineRefused) as caught:
        prepare_text(TextRequest(wrong, Sampling(), 1, 5), tokens, 10, 100)

    assert caught.value.status == 400


def test_texts_and_tokens_are_counted_too() -> None:
    for prompt in ("too long", (1,) * 8):
        with pytest.raises(ContextTooLong):
            prepare_text(TextRequest(prompt, Sampling(), 1, 5), tokens, 10, 8)
