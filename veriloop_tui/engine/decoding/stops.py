"""From token bytes to text: incremental UTF-8 and stop strings across token borders. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Iterable


class StopScanner:
    """Passes text on until a stop string is complete, and never emits a part of one.

    The result does not depend on how the bytes are cut into pieces.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.stopped = False

    def push(self, piece: bytes) -> str:
        """Take the next bytes; returns the text that is certain by now."""
        return self._scan(self._decoder.decode(piece))

    def finish(self) -> str:
        """The rest, once nothing more comes. An unfinished character becomes U+FFFD."""
        out = self._scan(self._decoder.decode(b"", True))
        if self.stopped:
            return out
        out, self._held = out + self._held, ""
        return out

    def _scan(self, text: str) -> str:
        if self.stopped:
            return ""
        self._held += text
        # The stop that is complete first wins, as if the characters came one by one.
        found = [(self._held.find(stop), len(stop)) for stop in self._stops]
        ends = [(at + length, at) for at, length in found if at >= 0]
        if ends:
            self.stopped = True
            return self._held[: min(ends)[1]]
        keep = max((self._overlap(stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        out, self._held = self._held[:cut], self._held[cut:]
        return out

    def _overlap(self, stop: str) -> int:
        """The length of the longest end of the held text that begins `stop`."""
        most = min(len(stop) - 1, len(self._held))
        return next((n for n in range(most, 0, -1) if stop.startswith(self._held[-n:])), 0)


class Seen:
    """Watches bytes go by for a marker that may be cut anywhere; an empty one is never seen."""

    def __init__(self, marker: str) -> None:
        self._marker = marker.encode()
        self._tail = b""

    def push(self, piece: bytes) -> bool:
        """Whether the marker ends within `piece`; it then starts anew."""
        if not self._marker:
            return False
        self._tail += piece
        if self._marker in self._tail:
            self._tail = b""
            return True
        self._tail = self._tail[1 - len(self._marker) :] if len(self._marker) > 1 else b""
        return False
