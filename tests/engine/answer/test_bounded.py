"""Templates of hostile model files."""

import sys

import pytest

from veriloop_tui.core.chat import Message
from veriloop_tui.engine.answer.template import ChatTemplate
from veriloop_tui.errors import TemplateError

ASKED = [Message("user", "hello")]


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% for i in range(9999) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endfor %}"
        "{% endmacro %}{{ m(3) }}",
        "{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
        "{{ 'x' * 10000000000 }}",
        "{{ 10000000000 * 'x' }}",
        "{{ [0] * 10000000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ 'x'.ljust(10000000000) }}",
        "{{ range(10000000000) | list }}",
        "{{ 'x'.center(10000000000) }}",
    ],
)
def test_a_template_that_would_never_end_or_fill_the_memory_is_refused(source: str) -> None:
    template = ChatTemplate(source, "", "")

    with pytest.raises(TemplateError):
        template.render(ASKED)


def test_a_long_conversation_is_well_within_the_bounds() -> None:
    template = ChatTemplate(
        "{% for message in messages %}{% if message.role == 'user' %}U{% else %}A{% endif %}"
        "{{ message.content }}\n{% endfor %}",
        "",
        "",
    )

    assert len(template.render(ASKED * 20_000)) == 20_000 * 7


def test_what_traced_before_traces_again_afterwards() -> None:
    before = sys.gettrace()

    ChatTemplate("{{ messages[0].content }}", "", "").render(ASKED)

    assert sys.gettrace() is before
