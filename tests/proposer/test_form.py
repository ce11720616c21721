"""Which form is asked for."""

from __future__ import annotations

import pytest

from tests.proposer.fakes import BASE
from veriloop_tui.core.memory import Displacement, ExplorationMemory
from veriloop_tui.core.transition import Decision, Label
from veriloop_tui.proposer.form import EditFormat, Form, choose_form

SMALL, MIDDLE, LARGE = 135_000_000, 1_700_000_000, 27_000_000_000


def _memory(*labels: Label) -> ExplorationMemory:
    entries = tuple(
        Displacement(
            base=BASE,
            tree="",
            answer="",
            label=label,
            decision=Decision.RULE_REJECTED,
            worsened=(),
            diff="",
        )
        for label in labels
    )
    return ExplorationMemory(entries)


@pytest.mark.parametrize(
    ("parameters", "form"),
    [
        (SMALL, Form.FUNCTION),
        (MIDDLE, Form.FILE),
        (LARGE, Form.SEARCH_REPLACE),
        (0, Form.SEARCH_REPLACE),
    ],
)
def test_auto_goes_by_the_size_of_the_model(parameters: int, form: Form) -> None:
    assert choose_form("auto", parameters, _memory()) is form


@pytest.mark.parametrize("wanted", ["search-replace", "file", "function"])
def test_a_wanted_form_is_used_whatever_happened(wanted: EditFormat) -> None:
    assert choose_form(wanted, SMALL, _memory(*[Label.INVALID] * 9)) == wanted


def test_each_run_of_invalid_answers_makes_auto_one_form_simpler() -> None:
    invalid = [Label.INVALID] * 3
    assert choose_form("auto", LARGE, _memory(*invalid[:2])) is Form.SEARCH_REPLACE
    assert choose_form("auto", LARGE, _memory(*invalid)) is Form.FILE
    assert choose_form("auto", LARGE, _memory(*invalid, Label.NO_PROGRESS)) is Form.FILE
    assert choose_form("auto", LARGE, _memory(*invalid * 2)) is Form.FUNCTION
    assert choose_form("auto", LARGE, _memory(*invalid * 5)) is Form.FUNCTION


def test_single_invalid_answers_do_not_add_up() -> None:
    mixed = [Label.INVALID, Label.INVALID, Label.NO_PROGRESS] * 3
    assert choose_form("auto", LARGE, _memory(*mixed)) is Form.SEARCH_REPLACE
