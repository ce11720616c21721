from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scripted_gguf import CHAT_TEMPLATE
from veriloop_tui.engine.gguf.facts import read_facts
from veriloop_tui.engine.gguf.suspicions import suspicions

HONEST = """
{%- macro show(value) %}{{ value | tojson }}{% endmacro -%}
{%- set ns = namespace(last=messages|length - 1, _seen=false) %}
{%- for message in messages[::-1] %}
  {%- set content = message.content if message.content is string else message['content'][0] %}
  {%- if message.role == "tool" and loop.index0 < 20 %}{% continue %}{% endif %}
  {%- for _name, _value in (message.tool_calls or [{}])[0].items() %}{{ show(_value) }}{% endfor %}
  {{- '<|im_start|>' + message['role'] + '\\n' + content.split('</think>')[-1].lstrip() }}
{%- endfor %}
{%- if not messages %}{{ raise_exception('no messages') }}{% endif %}
{% generation %}{{ strftime_now("%d %b %Y") }}{% endgeneration %}
"""


@pytest.mark.parametrize("template", [HONEST, CHAT_TEMPLATE, ""])
def test_an_honest_template_raises_no_suspicion(template: str) -> None:
    assert suspicions(template) == ()


def test_the_real_model_s_template_raises_none(smollm: Path) -> None:
    assert suspicions(read_facts(smollm).chat_template) == ()


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ ''.__class__.__mro__ }}", "'__class__'"),
        ("{{ messages.__init__.__globals__ }}", "'__globals__'"),
        ("{{ ''['__class__'] }}", "'__class__'"),
        ("{{ ''['__cla' ~ 'ss__'] }}", "from pieces"),
        ("{{ x['_' + '_class_' + '_'] }}", "from pieces"),
        ("{{ x['_' * 2] }}", "from pieces"),
        ("{{ x['__ssalc__' | reverse] }}", "from pieces"),
        ("{{ x | attr('mro') }}", "filter 'attr'"),
        ("{{ messages | map(attribute='__class__') | list }}", "'__class__'"),
        ("{{ '{0.__class__}'.format(1) }}", "'{0.__class__}'"),
        ("{{ lipsum.x }}", "'lipsum'"),
        ("{{ cycler.next }}", "'cycler'"),
        ("{% include '/etc/passwd' %}", "load other files"),
        ("{% import 'a' as b %}", "load other files"),
        ("{% from 'a' import b %}", "load other files"),
        ("{% extends 'a' %}", "load other files"),
        ("{% for i in range(1000000000) %}x{% endfor %}", "keep the engine busy"),
        ("{% for i in range(0, 99 * 99999) %}x{% endfor %}", "keep the engine busy"),
        ("{{ 'a' * 1000000000 }}", "use up the memory"),
        ("{{ 9 ** 9 ** 9 }}", "powers"),
        ("{% for a in b %}{% for c in b %}{% for d in b %}{% for e in b %}"
         "{% endfor %}{% endfor %}{% endfor %}{% endfor %}", "4 loops"),
        ("{# \u202e #}{{ 1 }}", "invisible"),
        ("{% if %}", "does not compile"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "too deeply"),
        ("x" * (2 << 20), "too many"),
    ],
)  # fmt: skip
def test_what_a_template_has_no_need_of_is_said(template: str, said: str) -> None:
    assert any(said in one for one in suspicions(template))


def test_many_suspicions_stay_on_one_screen() -> None:
    template = "\n".join(f"{{{{ x.__a{number}__ }}}}" for number in range(500))

    found = suspicions(template)

    assert len(found) == 11
    assert found[-1] == "and 490 more of the kind"
    assert "(line 2)" in found[1]


def test_nothing_of_a_template_reaches_the_terminal_as_it_is() -> None:
    (found,) = suspicions("{{ ''['\x1b[2J__'] }}")

    assert found.isprintable()


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="{}%#-'\"_ab.|()[]~+*/<>=,: \n0123if endforin", max_size=200))
def test_any_text_is_looked_through_without_a_crash(template: str) -> None:
    assert all(one.isprintable() for one in suspicions(template))
