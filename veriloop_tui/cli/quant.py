"""`veriloop quant`: its commands are loaded when one of them is called."""

from __future__ import annotations

import typer


def quant(context: typer.Context) -> None:
    """Quants of a model: what is in them, making them, and what they cost."""
    from quant.cli.app import application
    from veriloop_tui.wiring.quant_lab import show_lab
    from veriloop_tui.wiring.quant_tasks import run_study

    app = application(run_study, show_lab)
    # Not standalone, an interrupt and other early ends are returned as a code, not raised.
    code = app(context.args, prog_name="veriloop quant", standalone_mode=False)
    if isinstance(code, int) and code:
        raise typer.Exit(code)
