"""From a regular expression, as JSON schemas have them, to a grammar of JSON strings. Pure.

Read is the part of ECMA-262 that describes a regular language: no look-around, no references, no
word borders. A text matches if a part of it does, so a pattern without `^` or `$` may have any
text before or after.
"""

from __future__ import annotations

from typing import Final

from veriloop_tui.engine.grammar import gbnf
from veriloop_tui.engine.grammar.rules import Rules, refused
from veriloop_tui.errors import EngineRefused

Ranges = list[tuple[int, int]]

_MAX_DEPTH: Final = 20
_LAST: Final = 0x10FFFF
_DIGITS: Final = [(0x30, 0x39)]
_WORD: Final = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
_BLANK: Final = [(0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x2028, 0x2029), (0xFEFF, 0xFEFF)]
_LINE_ENDS: Final = [(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)]
_CONTROLS: Final = {"n": 0x0A, "r": 0x0D, "t": 0x09, "f": 0x0C, "v": 0x0B, "0": 0x00}
# Characters that a JSON string holds as escapes only; other control characters are left out.
_ESCAPED: Final = {0x22: '"', 0x5C: "\\", 0x08: "b", 0x09: "t", 0x0A: "n", 0x0C: "f", 0x0D: "r"}
_NEVER_PLAIN: Final = [(0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0x7F), (0xD800, 0xDFFF)]


def string_matching(pattern: str, rules: Rules, where: str) -> str:
    """The body of a rule for the JSON strings that match. Raises `EngineRefused` (400)."""
    return rf'"\"" ({_Pattern(pattern, rules, where).whole()}) "\""'


class _Pattern:
    """A pattern that is read from left to right. What is read comes as (body, may be empty)."""

    def __init__(self, pattern: str, rules: Rules, where: str) -> None:
        self._text, self._rules, self._where = pattern, rules, where
        self._at = 0
        self._depth = 0

    def whole(self) -> str:
        parts = [self._anchored()]
        while self._take("|"):
            parts.append(self._anchored())
        if self._at < len(self._text):
            raise self._refused()
        return " | ".join(parts)

    def _anchored(self) -> str:
        before = "" if self._take("^") else "char*"
        body, _ = self._sequence()
        after = "" if self._take("$") else "char*"
        return f"{before} {body} {after}"

    def _alternatives(self) -> tuple[str, bool]:
        read = [self._sequence()]
        while self._take("|"):
            read.append(self._sequence())
        return " | ".join(body for body, _ in read), any(empty for _, empty in read)

    def _sequence(self) -> tuple[str, bool]:
        bodies, may_be_empty = [], True
        while self._at < len(self._text) and self._text[self._at] not in "|)$":
            body, empty = self._repeated(*self._atom())
            bodies.append(body)
            may_be_empty = may_be_empty and empty
        return " ".join(bodies) or '""', may_be_empty

    def _repeated(self, item: str, empty: bool) -> tuple[str, bool]:
        times = self._times()
        if times is None:
            return item, empty
        least, most = times
        self._take("?")  # Lazy or not, the language is the same.
        if empty and most != 1:
            raise self._refused("a part that may be empty is repeated")
        if least > (most if most is not None else least):
            raise self._refused("a maximum is below its minimum")
        if most == 0:
            return '""', True
        return self._rules.repeat(item, least, most), empty or least == 0

    def _times(self) -> tuple[int, int | None] | None:
        for sign, times in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return times
        if not self._take("{"):
            return None
        inner, closed, _ = self._text[self._at :].partition("}")
        first, comma, second = inner.partition(",")
        if not closed or not _number(first) or not (_number(second) or not second):
            raise self._refused()
        self._at += len(inner) + 1
        least = int(first)
        most = (int(second) if second else None) if comma else least
        if max(least, most or 0) > gbnf.MAX_REPEAT:
            raise self._refused(f"something is repeated more than {gbnf.MAX_REPEAT} times")
        return least, most

    def _atom(self) -> tuple[str, bool]:
        if self._take("("):
            return self._group()
        if self._take("["):
            return self._set(self._class()), False
        if self._take("."):
            return self._set(_without(_LINE_ENDS)), False
        if self._take("\\"):
            return self._set(self._escape()), False
        char = self._text[self._at]
        if char in "*+?{}^":
            raise self._refused()
        self._at += 1
        return self._set([(ord(char), ord(char))]), False

    def _group(self) -> tuple[str, bool]:
        if self._take("?") and not self._take(":"):
            raise self._refused("look-around and named groups are not supported")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._refused("its brackets go too deep")
        body, empty = self._alternatives()
        if not self._take(")"):
            raise self._refused()
        self._depth -= 1
        return self._rules.add(body), empty

    def _class(self) -> Ranges:
        negated = self._take("^")
        ranges: Ranges = []
        while not self._take("]"):
            low = self._member()
            if self._text[self._at : self._at + 1] == "-" and self._text[self._at + 1 :][:1] != "]":
                self._at += 1
                high = self._member()
                if not _single(low) or not _single(high) or low > high:
                    raise self._refused("a range of characters is not one")
                ranges.append((low[0][0], high[0][1]))
            else:
                ranges += low
        return _without(ranges) if negated else ranges

    def _member(self) -> Ranges:
        if self._at >= len(self._text):
            raise self._refused()
        if self._take("\\"):
            return [(0x08, 0x08)] if self._take("b") else self._escape()
        self._at += 1
        code = ord(self._text[self._at - 1])
        return [(code, code)]

    def _escape(self) -> Ranges:
        char = self._text[self._at : self._at + 1]
        self._at += 1
        sets = {"d": _DIGITS, "w": _WORD, "s": _BLANK}
        if char and char in sets:
            return list(sets[char])
        if char and char.lower() in sets:
            return _without(sets[char.lower()])
        if char and char in "xu":
            n = 2 if char == "x" else 4
            digits = self._text[self._at : self._at + n]
            if len(digits) < n or not all(one in "0123456789abcdefABCDEF" for one in digits):
                raise self._refused()
            self._at += n
            return [(int(digits, 16), int(digits, 16))]
        if not char or (char.isalnum() and char not in _CONTROLS):
            raise self._refused()
        code = _CONTROLS.get(char, ord(char))
        return [(code, code)]

    def _set(self, ranges: Ranges) -> str:
        """One symbol for a character of a string that is in the ranges."""
        plain = _without(_NEVER_PLAIN + _without(ranges))
        parts = [gbnf.char_class(plain)] if plain else []
        parts += [
            gbnf.literal(f"\\{name}")
            for code, name in _ESCAPED.items()
            if any(low <= code <= high for low, high in ranges)
        ]
        if not parts:
            raise self._refused("a set of characters has none that is supported")
        return parts[0] if len(parts) == 1 and plain else self._rules.add(" | ".join(parts))

    def _take(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _refused(self, problem: str = "") -> EngineRefused:
        unread = f"it cannot be read from {self._text[self._at : self._at + 20]!r} on"
        return refused(self._where, f"pattern: {problem or unread}")


def _without(ranges: Ranges) -> Ranges:
    """All code points that are in none of the ranges."""
    left, at = [], 0
    for low, high in sorted(ranges):
        if at < low:
            left.append((at, low - 1))
        at = max(at, high + 1)
    return [*left, (at, _LAST)] if at <= _LAST else left


def _single(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 7
