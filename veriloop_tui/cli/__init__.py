"""The command line."""

from veriloop_tui.cli.app import app, main

__all__ = ["app", "main"]
