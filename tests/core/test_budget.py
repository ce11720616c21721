"""Budgets: each declared limit ends a run by its own name."""

from __future__ import annotations

import pytest

from veriloop_tui.core.budget import BudgetKind, Spent, exhausted
from veriloop_tui.core.obligation import BudgetLimits

NONE = BudgetLimits(
    attempts=None, tokens=None, wall_time=None, verifier_time=None, store_bytes=None
)


@pytest.mark.parametrize(
    ("limits", "spent", "kind"),
    [
        (BudgetLimits(attempts=2), Spent(attempts=2), "attempts"),
        (BudgetLimits(tokens=10), Spent(tokens=11), "tokens"),
        (BudgetLimits(wall_time=1.5), Spent(wall_time=1.5), "wall_time"),
        (BudgetLimits(verifier_time=3.0), Spent(verifier_time=4.0), "verifier_time"),
        (BudgetLimits(store_bytes=100), Spent(store_bytes=100), "store_bytes"),
    ],
)
def test_a_used_up_budget_is_named(limits: BudgetLimits, spent: Spent, kind: BudgetKind) -> None:
    assert exhausted(limits, spent) == kind


def test_what_is_below_every_limit_goes_on() -> None:
    assert exhausted(BudgetLimits(attempts=2, wall_time=9.0), Spent(1, 5, 8.9, 1.0, 7)) is None


def test_without_limits_nothing_is_ever_used_up() -> None:
    assert exhausted(NONE, Spent(10**9, 10**9, 1e9, 1e9, 10**15)) is None
