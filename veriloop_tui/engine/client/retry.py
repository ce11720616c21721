"""How often, and after how long, a request to another server is made again. Pure.

Only for requests that nothing was heard of, and for servers that said to come back later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Doubling from half a second: a server that restarts is back within moments or not at all.
_LOST_PAUSES: Final = (0.5, 1.0, 2.0)
# One that is loading its model, or full, says so and takes longer.
_BUSY_PAUSES: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
_MOST_ASKED: Final = 300.0
_MOST_TIMES: Final = 10


@dataclass(slots=True)
class Patience:
    """What is left of it within one request."""

    lost: int = 0
    busy: int = 0
    waited: float = 0.0

    def after_loss(self) -> float | None:
        """Seconds to wait after a lost connection, `None` to give up."""
        if self.lost == len(_LOST_PAUSES):
            return None
        self.lost += 1
        return _LOST_PAUSES[self.lost - 1]

    def after_busy(self, asked: float | None) -> float | None:
        """Seconds to wait where the server is busy, `None` to give up.

        `asked` is what its `Retry-After` says, which is kept to, up to five minutes in all.
        """
        if asked is None:
            pause = _BUSY_PAUSES[self.busy] if self.busy < len(_BUSY_PAUSES) else None
        else:
            pause = asked if self.busy < _MOST_TIMES else None
        if pause is None or self.waited + pause > _MOST_ASKED:
            return None
        self.busy += 1
        self.waited += pause
        return pause
