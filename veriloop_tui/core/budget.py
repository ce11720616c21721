"""Budgets: declared before a run, enforced during it, named at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from veriloop_tui.core.obligation import BudgetLimits

BudgetKind = Literal["attempts", "tokens", "wall_time", "verifier_time", "store_bytes"]


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run has used up. Times in seconds."""

    attempts: int = 0
    tokens: int = 0
    wall_time: float = 0.0
    verifier_time: float = 0.0
    store_bytes: int = 0


def exhausted(limits: BudgetLimits, spent: Spent) -> BudgetKind | None:
    """The first budget that allows no further attempt, or `None`."""
    pairs: tuple[tuple[BudgetKind, float | None, float], ...] = (
        ("attempts", limits.attempts, spent.attempts),
        ("tokens", limits.tokens, spent.tokens),
        ("wall_time", limits.wall_time, spent.wall_time),
        ("verifier_time", limits.verifier_time, spent.verifier_time),
        ("store_bytes", limits.store_bytes, spent.store_bytes),
    )
    for kind, limit, used in pairs:
        if limit is not None and used >= limit:
            return kind
    return None
