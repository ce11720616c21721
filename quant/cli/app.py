"""`veriloop quant`, also `python -m quant`: everything about quants of a model."""

from __future__ import annotations

import typer

from quant.cli import compare, corpora, inspect, lab, make, report, tasks
from quant.cli.lab import ShowLab
from quant.tasks.study import RunStudy


def application(run_study: RunStudy, show_lab: ShowLab) -> typer.Typer:
    """All commands; `run_study` runs repair tasks, `show_lab` opens the screen."""
    app = typer.Typer(
        name="quant",
        help="Quants of a model: what is in them, making them, and what they cost.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    inspect.register(app)
    make.register(app)
    compare.register(app)
    report.register(app)
    lab.register(app, show_lab)
    corpora.register(app)
    tasks.register(app, run_study)
    return app
