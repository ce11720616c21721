"""`veriloop quant lab`: comparing quants on a screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from quant.cli.compare import RECORDS, Records

ShowLab = Callable[[Path, Path, Path], None]


def register(app: typer.Typer, show: ShowLab) -> None:
    """Add the command to `app`; `show` opens the screen on a folder, records and a report's."""

    def run(
        folder: Annotated[Path, typer.Argument(help="Where the models are.")] = Path(),
        records: Records = RECORDS,
        out: Annotated[Path, typer.Option("--out", help="Folder for the report.")] = Path(
            "quant-report"
        ),
    ) -> None:
        """Pick a base and quants of a folder, watch them measured, open the report."""
        show(folder, records, out)

    app.command(name="lab")(run)
