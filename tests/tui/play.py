"""Run the app on a `FakeSession` with pauses between its events; the terminal test drives it."""

from __future__ import annotations

import sys

from tests.tui.fake_session import FakeSession
from veriloop_tui.tui import run_app


def main(delay: float) -> None:
    """Show the app and print how its last run ended."""
    ended = run_app(FakeSession(delay=delay))
    print("ended:", None if ended is None else ended.outcome.value)


if __name__ == "__main__":
    main(float(sys.argv[1]))
