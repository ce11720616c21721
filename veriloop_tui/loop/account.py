"""The account of a run: what was declared, what is spent, and when it is over."""

from __future__ import annotations

from collections.abc import Callable

from veriloop_tui.core.budget import BudgetKind, Spent, exhausted
from veriloop_tui.core.obligation import BudgetLimits
from veriloop_tui.core.ports import Cancel, Clock

ANSWER_TOKENS = 4096


class Account:
    """Counts against declared limits. It is itself a `Cancel`: set once the wall time is over."""

    def __init__(
        self,
        limits: BudgetLimits,
        clock: Clock,
        stored_bytes: Callable[[], int],
        cancel: Cancel,
    ) -> None:
        self._limits, self._clock, self._stored_bytes = limits, clock, stored_bytes
        self._cancel = cancel
        self._began = clock.monotonic()
        self._attempts, self._tokens, self._verifier_time = 0, 0, 0.0

    @property
    def cancelled(self) -> bool:
        """Whether the user asked for an end."""
        return self._cancel.is_set()

    def is_set(self) -> bool:
        """Whether to stop now: the user asked, or the declared wall time is over."""
        limit = self._limits.wall_time
        return self.cancelled or (limit is not None and self._elapsed() >= limit)

    def add(self, *, attempts: int = 0, tokens: int = 0, verifier_time: float = 0.0) -> None:
        """Book what was used."""
        self._attempts += attempts
        self._tokens += tokens
        self._verifier_time += verifier_time

    def spent(self) -> Spent:
        """All that is booked, with the wall time and the size of the store as they are now."""
        return Spent(
            self._attempts,
            self._tokens,
            self._elapsed(),
            self._verifier_time,
            self._stored_bytes(),
        )

    def exhausted(self) -> BudgetKind | None:
        """The budget that allows no further attempt, if one does not."""
        return exhausted(self._limits, self.spent())

    def answer_tokens(self) -> int:
        """How long the next answer may be."""
        if self._limits.tokens is None:
            return ANSWER_TOKENS
        return max(1, min(ANSWER_TOKENS, self._limits.tokens - self._tokens))

    def _elapsed(self) -> float:
        return self._clock.monotonic() - self._began
