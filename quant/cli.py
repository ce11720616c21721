"""`veriloop quant`, also `python -m quant`: everything about quants of a model."""

from __future__ import annotations

import typer

from quant import cli_compare, cli_corpora, cli_inspect, cli_make, cli_report, cli_tasks
from quant.tasks_study import RunStudy


def application(run_study: RunStudy) -> typer.Typer:
    """All commands; `run_study` runs repair tasks with the controller."""
    app = typer.Typer(
        name="quant",
        help="Quants of a model: what is in them, making them, and what they cost.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    cli_inspect.register(app)
    cli_make.register(app)
    cli_compare.register(app)
    cli_report.register(app)
    cli_corpora.register(app)
    cli_tasks.register(app, run_study)
    return app
