from datetime import UTC, datetime

import pytest

from veriloop_tui.core.chat import Message, Tool, ToolCall
from veriloop_tui.engine.answer.template import ChatTemplate
from veriloop_tui.errors import TemplateError

CHATML = (
    "{% for message in messages %}\n"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}\n"
    "    {{ '<|im_start|>assistant\\n' }}"
    "{% endif %}"
)
ASKED = (Message("system", "Be short."), Message("user", "Hi"))


def render(source: str, *messages: Message) -> str:
    return ChatTemplate(source, "<s>", "</s>").render(messages or ASKED)


def test_the_template_asks_for_the_next_assistant_message() -> None:
    assert render(CHATML) == (
        "<|im_start|>system\nBe short.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n"
        "    <|im_start|>assistant\n"
    )


def test_a_final_message_is_continued_exactly_as_it_is() -> None:
    template = ChatTemplate(CHATML, "", "")
    prefix = "```python\ndef f():\n    \t "

    prompt = template.render((*ASKED, Message("assistant", prefix)), continue_final_message=True)

    assert prompt == template.render(ASKED) + prefix


def test_a_users_message_cannot_be_continued() -> None:
    with pytest.raises(TemplateError, match="user"):
        ChatTemplate(CHATML, "", "").render(ASKED, continue_final_message=True)


def test_a_model_without_a_template_is_refused() -> None:
    with pytest.raises(TemplateError, match="has none"):
        ChatTemplate("", "", "")


def test_no_messages_are_refused() -> None:
    with pytest.raises(TemplateError):
        ChatTemplate(CHATML, "", "").render(())


def test_a_broken_template_is_refused_when_it_is_compiled() -> None:
    with pytest.raises(TemplateError):
        ChatTemplate("{% for %}", "", "")


def test_the_templates_own_refusal_is_passed_on() -> None:
    with pytest.raises(TemplateError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'content': 'x'}) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ 1 // 0 }}",
        "{{ 'a' + 1 }}",
        "{% for i in range(10000000) %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_a_hostile_template_ends_in_a_template_error(source: str) -> None:
    with pytest.raises(TemplateError):
        render(source)


def test_special_tokens_and_the_date_come_from_outside() -> None:
    template = ChatTemplate(
        "{{ bos_token }}{{ strftime_now('%Y-%m-%d') }}{{ eos_token }}",
        "<s>",
        "</s>",
        clock=lambda: datetime(2025, 2, 3, tzinfo=UTC),
    )

    assert template.render(ASKED) == "<s>2025-02-03</s>"


def test_json_is_not_escaped_for_html() -> None:
    assert render("{{ messages[1] | tojson }}", *ASKED[:1], Message("user", "<é>")) == (
        '{"role": "user", "content": "<é>"}'
    )


TOOL = Tool("look", "Looks.", '{"type": "object", "properties": {"b": {}, "a": {}}}')
THINKER = (
    '{% if tools %}{{ tools | tojson }}<tool_call>{"name"{% endif %}'
    "{% for m in messages %}[{{ m.role }}]"
    "{% if m.reasoning_content is string %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}"
    "{% for call in m.tool_calls %}{{ call.function.name }}"
    "{% for key, value in call.function.arguments | items %}({{ key }}={{ value }}){% endfor %}"
    "{% endfor %}"
    "{% if m.name %}<{{ m.name }}{% endif %}"
    "{% endfor %}[assistant]{% if enable_thinking is not false %}<think>\n{% endif %}"
)


def test_thinking_calls_and_their_answers_reach_the_template() -> None:
    call = ToolCall("c1", "look", '{"b": 1, "a": "x"}')
    messages = (
        Message("user", "Hi"),
        Message("assistant", "", reasoning="hm", tool_calls=(call,)),
        Message("tool", "seen", tool_call_id="c1"),
    )

    assert render(THINKER, *messages) == (
        "[user]Hi[assistant]<think>hm</think>look(b=1)(a=x)[tool]seen<look[assistant]<think>\n"
    )


def test_arguments_that_are_no_object_reach_the_template_as_text() -> None:
    source = "{{ messages[0].tool_calls[0].function.arguments is string }}"

    for arguments in ("[1]", "oops", "[" * 100_000):
        called = Message("assistant", "", tool_calls=(ToolCall("c1", "look", arguments),))
        assert render(source, called) == "True"


def test_tools_reach_the_template_with_their_schema_in_the_callers_order() -> None:
    prompt = ChatTemplate(THINKER, "", "").render(ASKED, tools=(TOOL,))

    assert '"function": {"name": "look", "description": "Looks.", "parameters": ' in prompt
    assert '"properties": {"b": {}, "a": {}}' in prompt


@pytest.mark.parametrize(
    ("source", "reason"),
    [(CHATML, "no place for tools"), ("{{ tools }}<tool_call>name<arg>", "not known here")],
)
def test_tools_are_not_dropped_by_a_template_that_cannot_show_or_call_them(
    source: str, reason: str
) -> None:
    with pytest.raises(TemplateError, match=reason):
        ChatTemplate(source, "", "").render(ASKED, tools=(TOOL,))


def test_values_reach_the_template_but_never_replace_its_own() -> None:
    template = ChatTemplate(THINKER, "", "")

    assert template.render(ASKED, values=(("enable_thinking", False),)).endswith("[assistant]")
    with pytest.raises(TemplateError, match="'messages'"):
        template.render(ASKED, values=(("messages", "mine"),))


@pytest.mark.parametrize(
    ("source", "form", "start"),
    [
        (THINKER, "json", "<think>"),
        ("<tool_call><function=f> <thinking></thinking>", "xml", "<thinking>"),
        ("<tool_call>f<arg_key>", None, None),
    ],
)
def test_the_forms_of_calls_and_thinking_are_found_in_the_source(
    source: str, form: str | None, start: str | None
) -> None:
    template = ChatTemplate(source, "", "")

    assert template.call_form == form
    assert template.thinks == (start is not None)
    assert template.markers.start == (start or "<think>")


@pytest.mark.parametrize(
    ("last", "end"),
    [
        (Message("assistant", "Yes"), "<think>\n\n</think>\n\nYes"),
        (Message("assistant", "Yes", reasoning="hm"), "<think>\nhm\n</think>\n\nYes"),
        (Message("assistant", "", reasoning="hm"), "<think>\nhm"),
        (Message("assistant", "<think>hm"), "<think>hm"),
    ],
)
def test_a_continued_answer_is_never_taken_for_thinking(last: Message, end: str) -> None:
    prompt = ChatTemplate(THINKER, "", "").render((*ASKED, last), continue_final_message=True)

    assert prompt.endswith(f"[assistant]{end}")


def test_a_continued_thought_is_opened_where_the_template_does_not() -> None:
    last = Message("assistant", "", reasoning="hm")
    template = ChatTemplate(CHATML, "", "")

    assert template.render((*ASKED, last), True).endswith("assistant\n<think>\nhm")


def test_calls_of_tools_cannot_be_continued() -> None:
    called = Message("assistant", "", tool_calls=(ToolCall("c1", "look", "{}"),))

    with pytest.raises(TemplateError, match="cannot be continued"):
        ChatTemplate(CHATML, "", "").render((*ASKED, called), True)


def test_marks_of_training_text_are_read_over() -> None:
    assert render("a{% generation %}b{{ messages | length }}{% endgeneration %}c") == "ab2c"
