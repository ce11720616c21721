"""Grammars of the numbers between two bounds, both included unless said otherwise. Pure."""

from __future__ import annotations

from typing import Final

_MOST: Final = 10**16 - 1  # of a number without a bound
_FRACTION: Final = '("." [0-9]{1,16})?'
_ZEROS: Final = '("." "0"{1,16})?'


def integers(low: int | None, high: int | None) -> str:
    """The body of a rule for the integers from `low` to `high`; empty if there are none."""
    least, most = _limits(low, high)
    parts = []
    if least < 0:
        parts.append(_negative(_natural(max(1, -most), -least)))
    parts.append(_natural(max(0, least), most))
    return _either(parts)


def numbers(
    low: int | None, high: int | None, *, above_low: bool = False, below_high: bool = False
) -> str:
    """The body of a rule for decimal fractions from `low` to `high`; empty if there are none.

    With `above_low` and `below_high` the bounds themselves do not belong to them.
    """
    least, most = _limits(low, high)
    parts = []
    if least < 0:
        # Mirrored, the upper bound is the lower one. 0 is said without a sign.
        end, open_end = (-most, below_high) if most < 0 else (0, True)
        parts.append(_negative(_decimals(end, -least, open_end, above_low)))
    if most >= 0:
        begin, open_begin = (least, above_low) if least >= 0 else (0, False)
        parts.append(_decimals(begin, most, open_begin, below_high))
    return _either(parts)


def _limits(low: int | None, high: int | None) -> tuple[int, int]:
    least = low if low is not None else min(-_MOST, (high or 0) - 1)
    most = high if high is not None else max(_MOST, (low or 0) + 1)
    return least, most


def _decimals(low: int, high: int, open_low: bool, open_high: bool) -> str:
    """Numbers without a sign; 0 <= low."""
    parts = []
    if low < high:
        whole = _natural(low + open_low, high - 1)
        parts.append(f"({whole}) {_FRACTION}" if whole else "")
        parts.append(f'"{low}." [0-9]{{0,15}} [1-9]' if open_low else "")
    if low < high or (low == high and not open_low):
        parts.append("" if open_high else f'"{high}" {_ZEROS}')
    return _either(parts)


def _natural(low: int, high: int) -> str:
    """Integers without a sign; 0 <= low."""
    parts = []
    while low <= high:
        # As many digits as the lower bound has.
        end = min(high, 10 ** len(str(low)) - 1)
        parts.append(_digits(str(low), str(end)))
        low = end + 1
    return _either(parts)


def _digits(low: str, high: str) -> str:
    """Digit strings of one length, from one to the other."""
    if low == high:
        return f'"{low}"'
    n = len(low)
    if set(low) == {"0"} and set(high) == {"9"}:
        return f"[0-9]{{{n}}}"
    if n == 1:
        return f"[{low}-{high}]"
    if low[0] == high[0]:
        return f'"{low[0]}" ({_digits(low[1:], high[1:])})'
    first, last = int(low[0]), int(high[0])
    parts = []
    if set(low[1:]) != {"0"}:
        parts.append(f'"{first}" ({_digits(low[1:], "9" * (n - 1))})')
        first += 1
    if set(high[1:]) != {"9"}:
        last -= 1
    if first <= last:
        parts.append(f"[{first}-{last}] [0-9]{{{n - 1}}}")
    if set(high[1:]) != {"9"}:
        parts.append(f'"{high[0]}" ({_digits("0" * (n - 1), high[1:])})')
    return _either(parts)


def _negative(body: str) -> str:
    return f'"-" ({body})' if body else ""


def _either(parts: list[str]) -> str:
    return " | ".join(part for part in parts if part)
