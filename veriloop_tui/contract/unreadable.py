"""The error of a run that says nothing that could be ranked."""

from __future__ import annotations

from veriloop_tui.errors import VeriloopError


class Unreadable(VeriloopError):
    """A command's run cannot be read as checks; `reason` goes on from the obligation's name."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The run cannot be ranked: it {reason}.")
