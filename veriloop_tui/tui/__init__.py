"""The terminal app: a view folded from events, and the screen that shows it."""

from veriloop_tui.tui.app import run_app

__all__ = ["run_app"]
