from datetime import UTC, datetime

import pytest

from veriloop_tui.core.chat import Message
from veriloop_tui.engine.template import ChatTemplate
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
