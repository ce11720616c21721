"""Which form of answer to ask for. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, assert_never

from veriloop_tui.core.memory import ExplorationMemory
from veriloop_tui.core.transition import Label

EditFormat = Literal["auto", "search-replace", "function", "file"]

FUNCTION_BELOW = 1_000_000_000
FILE_BELOW = 3_000_000_000
INVALID_RUN = 3


class Form(StrEnum):
    """A form of answer, from the hardest for a model to the simplest."""

    SEARCH_REPLACE = "search-replace"
    FILE = "file"
    FUNCTION = "function"


_HARDEST_FIRST = tuple(Form)


def choose_form(edit_format: EditFormat, parameters: int, memory: ExplorationMemory) -> Form:
    """The form to ask for next.

    `auto` goes by the model's number of parameters (0 = not known, read as large), and one form
    simpler for each `INVALID_RUN` invalid answers in a row that the memory holds.
    """
    match edit_format:
        case "search-replace" | "file" | "function":
            return Form(edit_format)
        case "auto":
            start = _HARDEST_FIRST.index(_by_size(parameters))
            return _HARDEST_FIRST[min(start + _invalid_runs(memory), len(_HARDEST_FIRST) - 1)]
        case _:
            assert_never(edit_format)


def _by_size(parameters: int) -> Form:
    if 0 < parameters < FUNCTION_BELOW:
        return Form.FUNCTION
    if 0 < parameters < FILE_BELOW:
        return Form.FILE
    return Form.SEARCH_REPLACE


def _invalid_runs(memory: ExplorationMemory) -> int:
    """How many full runs of invalid answers there were; a valid one in between starts afresh."""
    runs = length = 0
    for entry in memory.entries:
        length = length + 1 if entry.label is Label.INVALID else 0
        if length == INVALID_RUN:
            runs, length = runs + 1, 0
    return runs
