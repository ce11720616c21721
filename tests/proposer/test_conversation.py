"""The conversational forms: what is in the prompt, how it grows, how it stays within bounds."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.proposer.fakes import context, failing, protects, workspace
from veriloop_tui.core.evidence import Evidence
from veriloop_tui.core.ports import ProposalContext
from veriloop_tui.proposer.conversation import conversation_prompt
from veriloop_tui.proposer.form import Form
from veriloop_tui.proposer.prompt import Prompt, fenced, prompt_chars

FILES = {
    "calc.py": b"def add(a, b):\r\n\treturn a - b\r\n",
    "big.py": b"\n".join(b"line_%d = 0" % n for n in range(2000)),
    "odd.py": b"name = '\xe9'\n",
    "logo.png": b"\x89PNG\0\0",
    "tests/test_calc.py": b"from calc import add\n\ndef test_add():\n    assert add(1, 1) == 2\n",
}
SHOP = workspace(FILES)
FAILING = failing("tests/test_calc.py::test_add", "assert 0 == 2\ncalc.py:2: AssertionError")


def _prompt(asked: ProposalContext, n_ctx: int = 8192, form: Form = Form.SEARCH_REPLACE) -> Prompt:
    return conversation_prompt(asked, SHOP, form, n_ctx, n_ctx // 4)


def _said(prompt: Prompt) -> str:
    return "\n".join(message.content for message in prompt.messages)


def _evidence(text: str) -> Evidence:
    return Evidence(text, 1, 1, (), (), 0.0, 0.0, 1.0, False, False)


def test_task_rule_files_and_failures_are_in_the_prompt() -> None:
    said = _said(_prompt(context(FAILING, task="Make it add.")))
    for part in ("Make it add.", "no check got worse", "\treturn a - b", "assert 0 == 2"):
        assert part in said
    assert "`tests/test_calc.py` (protected)" in said


def test_only_files_shown_in_full_and_as_they_are_may_be_given_whole() -> None:
    prompt = _prompt(context(FAILING, task="See big.py, odd.py and logo.png"))
    assert prompt.shown_whole == {"calc.py", "tests/test_calc.py"}
    assert "`big.py` (only lines 1 to" in _said(prompt)
    assert "not text: logo.png" in _said(prompt)


def test_a_large_file_is_shown_around_the_line_of_the_traceback() -> None:
    said = _said(_prompt(context(failing("t", "big.py:1500: in x"))))
    assert "line_1499 = 0" in said
    assert "line_1 = 0" not in said


def test_the_next_attempt_only_adds_at_the_end() -> None:
    prompts = []
    asked = context(FAILING, task="Make it add.")
    for number in range(4):
        prompts.append(_prompt(asked).messages)
        asked = replace(
            asked,
            attempt=asked.attempt + 1,
            answers=(*asked.answers, f"answer {number}"),
            history=(*asked.history, _evidence(f"outcome {number}")),
        )
    for before, after in pairwise(prompts):
        assert after[: len(before)] == before
        assert [message.role for message in after[len(before) :]] == ["assistant", "user"]
    assert prompts[3][-2].content == "answer 2"
    assert prompts[3][-1].content.startswith("outcome 2")


def test_outcomes_without_an_answer_still_take_turns() -> None:
    asked = replace(context(FAILING), history=(_evidence("first"), _evidence("second")))
    roles = [message.role for message in _prompt(asked).messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]


def test_what_does_not_fit_any_more_is_left_out_visibly() -> None:
    history = tuple(_evidence(f"outcome {n} " + "x" * 900) for n in range(40))
    asked = replace(context(FAILING), history=history, answers=("y" * 500,) * 40)
    prompt = _prompt(asked)
    assert "earlier attempts were left out.)" in prompt.messages[3].content
    assert "outcome 39" in prompt.messages[-1].content


def test_what_is_left_out_stays_the_same_for_several_attempts() -> None:
    starts = []
    for length in range(30, 38):
        history = tuple(_evidence(f"outcome {n} " + "x" * 900) for n in range(length))
        asked = replace(context(FAILING), history=history, answers=("y" * 500,) * length)
        starts.append(_prompt(asked).messages[3].content)
    assert len(set(starts)) <= 3


@pytest.mark.parametrize("n_ctx", [1024, 2048, 4096, 32_768])
@pytest.mark.parametrize("form", [Form.SEARCH_REPLACE, Form.FILE])
def test_the_prompt_keeps_room_for_the_answer(n_ctx: int, form: Form) -> None:
    many = [failing(f"tests/test_calc.py::test_{n}", "e" * 5000) for n in range(50)]
    asked = replace(
        context(*many, task="t" * 50_000 + " calc.py big.py odd.py"),
        history=(_evidence("o" * 4000),) * 20,
        answers=("a" * 3000,) * 20,
    )
    said = sum(len(message.content) for message in _prompt(asked, n_ctx, form).messages)
    assert said <= max(prompt_chars(n_ctx, n_ctx // 4), 3500)


def test_a_fence_is_longer_than_any_in_the_text() -> None:
    assert fenced("a\n````\nb\n").startswith("`````\n")


def test_protected_files_are_marked_in_the_list_of_files() -> None:
    assert protects("tests/test_calc.py")
    assert "tests/test_calc.py (protected)\n" in _said(_prompt(context(FAILING)))
