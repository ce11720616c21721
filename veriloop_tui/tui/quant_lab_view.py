"""What the screen for comparing quants shows, without widgets: rows of text, points of a plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from veriloop_tui.core.excerpt import one_line
from veriloop_tui.core.quant_lab import LabFile, LabRow, LabValue

HEADINGS = ("#", "quant", "MiB", "mean KLD", "PPL ratio", "same top, %", "chunks", "place")
_NAME = 200
_LIST_NAME = 26
_TABLE_NAME = 24


@dataclass(frozen=True, slots=True)
class Points:
    """Points of the plot by the numbers of their rows, and the Pareto front through some.

    Sizes in MiB; KLD as its decimal logarithm, since it spans decades.
    """

    sizes: tuple[float, ...]
    logs: tuple[float, ...]
    numbers: tuple[int, ...]
    front: tuple[int, ...]


def file_label(file: LabFile, *, base: bool) -> Text:
    """A model in the list of files."""
    mark = ("BASE ", "bold green") if base else ("     ", "")
    size = f" {file.size / 2**20:8.1f} MiB {file.bpw:6.3f} BPW"
    return Text.assemble(mark, f"{_end(file.name, _LIST_NAME):{_LIST_NAME}}", size)


def by_size(rows: Sequence[LabRow]) -> tuple[LabRow, ...]:
    """The order of the table: by size, never by name."""
    return tuple(sorted(rows, key=lambda row: -row.size))


def cells(number: int, row: LabRow) -> tuple[Text, ...]:
    """A row of the table, under `HEADINGS`."""
    name = Text(_end(row.name, _TABLE_NAME))
    size = Text(f"{row.size / 2**20:.1f}", justify="right")
    chunks = Text(str(row.chunks), justify="right")
    if row.problem:
        told = Text(one_line(row.problem, 200), "red")
        return Text(str(number)), name, size, told, Text(), Text(), chunks, Text()
    place = f"{row.place}{' front' if row.on_front else ''}" if row.place else ""
    return (
        Text(str(number)),
        name,
        size,
        _value(row.kld, 6),
        _value(row.ppl_ratio, 4),
        _value(row.same_top, 3, 100),
        chunks,
        Text(place, "green" if row.on_front else ""),
    )


def _end(text: str, width: int) -> str:
    """The end of a name: that is where quants of one model differ."""
    name = one_line(text, _NAME)
    return name if len(name) <= width else f"…{name[1 - width :]}"


def _value(value: LabValue | None, digits: int, scale: float = 1.0) -> Text:
    if value is None:
        return Text("–", justify="right")
    told = f"{value.value * scale:.{digits}f} ± {value.error * scale:.{digits}f}"
    return Text(told, justify="right")


def points(rows: Sequence[LabRow]) -> Points:
    """Mean KLD against size, of the rows in the order of the table that have one above 0."""
    shown = [
        (number, row.size / 2**20, row.kld.value)
        for number, row in enumerate(rows, 1)
        if row.kld is not None and row.kld.value > 0 and not row.problem
    ]
    front = []
    for at, (_, size, kld) in enumerate(shown):
        if not any(s <= size and k <= kld and (s, k) != (size, kld) for _, s, k in shown):
            front.append(at)
    return Points(
        sizes=tuple(size for _, size, _ in shown),
        logs=tuple(math.log10(kld) for *_, kld in shown),
        numbers=tuple(number for number, *_ in shown),
        front=tuple(sorted(front, key=lambda at: shown[at][1])),
    )


def ticks(logs: Sequence[float]) -> tuple[list[float], list[str]]:
    """Whole decades around some decimal logarithms, and what they are called."""
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    decades = range(low, max(high, low + 1) + 1)
    return list(map(float, decades)), [f"{10.0**one:g}" for one in decades]
