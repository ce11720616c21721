"""Thinking: the markers that models put around it, and how long it may be. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from veriloop_tui.engine.job import ThinkingBounds


@dataclass(frozen=True, slots=True)
class ThinkingMarkers:
    """What a model writes before and after its thinking."""

    start: str
    end: str

    def open_in(self, text: str) -> bool:
        """Whether thinking has begun in `text` and has not ended."""
        return text.rfind(self.start) > text.rfind(self.end)

    @property
    def closing(self) -> str:
        """What ends the thinking, with the blank lines that models are trained on."""
        return f"\n{self.end}\n\n"


DEFAULT_MARKERS: Final = ThinkingMarkers("<think>", "</think>")
KNOWN_MARKERS: Final = (
    DEFAULT_MARKERS,
    ThinkingMarkers("<thinking>", "</thinking>"),
    ThinkingMarkers("<seed:think>", "</seed:think>"),
    ThinkingMarkers("[THINK]", "[/THINK]"),
    ThinkingMarkers("<|START_THINKING|>", "<|END_THINKING|>"),
)


def markers_in(template: str) -> ThinkingMarkers | None:
    """The markers that a chat template's source speaks of, `None` if it knows of no thinking."""
    for markers in KNOWN_MARKERS:
        if markers.start in template and markers.end in template:
            return markers
    return None


def thinking_tokens(room: int, wanted: int | None, n_closing: int) -> int:
    """The tokens that thinking may take of `room` tokens, and always leave some for an answer.

    A quarter of the room stays free, or more if `wanted` is less. The `n_closing` tokens that end
    the thinking and one token of the answer are not to be had. 0 or less: there is no room to
    think.
    """
    most = min(room * 3 // 4, room - n_closing - 1)
    return most if wanted is None else min(most, wanted)


def bounds(markers: ThinkingMarkers, tokens: int, *, opened: bool) -> ThinkingBounds:
    """What the decode loop is told of the thinking."""
    return ThinkingBounds(markers.start, markers.end, tokens, markers.closing, opened)
