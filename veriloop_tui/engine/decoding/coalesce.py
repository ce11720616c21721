"""Fewer, larger pieces of a fast answer: each piece costs work that the decoding threads miss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from veriloop_tui.core.chat import ChatEvent, TextDelta

# One frame of a screen.
INTERVAL_SECONDS: Final = 0.016


def coalesced(
    events: Iterable[ChatEvent], clock: Callable[[], float], interval: float = INTERVAL_SECONDS
) -> Iterator[ChatEvent]:
    """The same events, with text that follows within `interval` seconds joined to one piece.

    A piece is never held back while nothing follows it for longer than the pace of the tokens.
    """
    held: dict[int, str] = {}
    sent = float("-inf")
    for event in events:
        if isinstance(event, TextDelta):
            held[event.index] = held.get(event.index, "") + event.text
            if (now := clock()) - sent < interval:
                continue
            sent = now
            yield from _all(held)
        else:
            yield from _all(held)
            yield event
    yield from _all(held)


def _all(held: dict[int, str]) -> Iterator[TextDelta]:
    pieces = list(held.items())
    held.clear()
    for index, text in pieces:
        yield TextDelta(text, index)
