"""A report written to a folder: HTML, Markdown, CSV and the plots, each whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from quant.report.csv_file import to_csv
from quant.report.data import Report
from quant.report.html_page import Image, to_html
from quant.report.markdown import to_markdown
from quant.report.plot import FORMATS, plots, to_bytes
from veriloop_tui.errors import UsageError

_PAGE: Final = "report.html"


def write_report(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write all files of a report; the page stands first in what is returned.

    Plots of the n-th comparison are called `n-NAME.svg` and `n-NAME.png`. Raises
    `LibraryMissing`, `UsageError` where the folder cannot be written.
    """
    drawn: dict[str, bytes] = {}
    images: list[list[Image]] = []
    for number, comparison in enumerate(report.comparisons, 1):
        mine: list[Image] = []
        for name, figure in plots(comparison):
            for form in FORMATS:
                drawn[f"{number}-{name}.{form}"] = to_bytes(figure, form)
            mine.append(Image(name, drawn[f"{number}-{name}.svg"]))
        images.append(mine)
    files = {
        _PAGE: to_html(report, images).encode(),
        "report.md": to_markdown(report).encode(),
        "report.csv": to_csv(report).encode(),
        **drawn,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return tuple(_write(folder / name, data) for name, data in files.items())
    except OSError as problem:
        raise UsageError(f"{folder} cannot be written: {problem.strerror}.") from problem


def _write(path: Path, data: bytes) -> Path:
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path
