"""The form for tiny models."""

from __future__ import annotations

import pytest

from tests.proposer.fakes import failing, workspace
from veriloop_tui.proposer.function_form import ANSWER_TOKENS, function_prompt
from veriloop_tui.proposer.prompt import Prompt
from veriloop_tui.proposer.target import find_targets

CALC = b'''\
import math

LIMIT = 3


def area(r):
    """Return the area of a circle."""
    return math.pi * r


class Basket:
    """Holds prices."""

    def __init__(self):
        self.prices = []

    @property
    def total(self):
        """Return the sum."""
        return len(self.prices)
'''
TEST = b"""\
from calc import Basket, area

def test_area():
    assert area(0) == 0

def test_total():
    assert Basket().total == 0
"""


def _prompt(name: str, qualname: str, *, show_body: bool, calc: bytes = CALC) -> Prompt:
    shop = workspace({"calc.py": calc, "tests/test_calc.py": TEST})
    targets = find_targets(shop, (failing(f"tests/test_calc.py::{name}", "assert 1 == 2"),))
    (target,) = [one for one in targets if one.definition.qualname == qualname]
    return function_prompt(target, calc, show_body, 4096)


def _said(prompt: Prompt) -> str:
    return "\n".join(message.content for message in prompt.messages)


def test_the_hidden_body_is_nowhere_and_the_answer_begins_with_the_head() -> None:
    prompt = _prompt("test_area", "area", show_body=False)
    assert "math.pi" not in _said(prompt)
    assert prompt.messages[-1].role == "assistant"
    assert prompt.messages[-1].content == prompt.prefill
    assert prompt.prefill == ('```python\ndef area(r):\n    """Return the area of a circle."""')


def test_the_shown_body_is_in_the_question_and_not_in_the_begun_answer() -> None:
    prompt = _prompt("test_area", "area", show_body=True)
    assert "return math.pi * r" in prompt.messages[1].content
    assert "math.pi" not in prompt.prefill


def test_imports_and_constants_are_shown_but_neither_other_functions_nor_failures() -> None:
    said = _said(_prompt("test_area", "area", show_body=False))
    assert "import math\nLIMIT = 3" in said
    assert "Basket" not in said
    assert "assert 1 == 2" not in said


def test_long_surroundings_are_left_out() -> None:
    calc = b"TABLE = [" + b"1, " * 300 + b"]\n" + CALC
    assert "TABLE" not in _said(_prompt("test_area", "area", show_body=False, calc=calc))


def test_a_method_is_asked_for_at_the_left_edge_with_its_class_shown() -> None:
    prompt = _prompt("test_total", "Basket.total", show_body=False)
    assert prompt.prefill.endswith('@property\ndef total(self):\n    """Return the sum."""')
    assert "self.prices = []" in _said(prompt)
    assert "len(self.prices)" not in _said(prompt)
    assert (prompt.named, prompt.qualname) == ("calc.py", "Basket.total")


def test_the_begin_of_every_prompt_is_the_same() -> None:
    first = _prompt("test_area", "area", show_body=False)
    second = _prompt("test_total", "Basket.total", show_body=True)
    assert first.messages[0] == second.messages[0]


def test_the_answer_is_short() -> None:
    assert _prompt("test_area", "area", show_body=False).max_tokens == ANSWER_TOKENS


@pytest.mark.parametrize("one_line", [b"def area(r): return r", b"def area(\n    r,\n): return r"])
def test_a_body_on_the_line_of_the_signature_is_hidden_too(one_line: bytes) -> None:
    prompt = _prompt("test_area", "area", show_body=False, calc=one_line + b"\n")
    assert prompt.prefill.endswith(":")
    assert "return r" not in _said(prompt)
