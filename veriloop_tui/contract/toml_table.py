"""Typed access to one TOML table, naming the key in everything that is wrong. Pure."""

from __future__ import annotations

import difflib
import re
from typing import NoReturn, Protocol

from veriloop_tui.core.excerpt import one_line

Path = tuple[str | int, ...]

_DURATION = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9}(?:\.\d{1,3})?)s)?", re.ASCII)
_LONGEST = 365 * 24 * 3600.0


class Fail(Protocol):
    """Raises the error for the key `key` (as people write it) at `at`."""

    def __call__(self, at: Path, key: str, problem: str) -> NoReturn: ...


class Table:
    """One table; each key is asked for once, and `end` refuses those that were not."""

    def __init__(self, values: dict[str, object], at: Path, name: str, fail: Fail) -> None:
        self._values, self._at, self._name, self._fail = values, at, name, fail
        self._asked: dict[str, None] = {}

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raise the error for a key of this table."""
        self._fail((*self._at, key), self._below(key), problem)

    def end(self) -> None:
        """Fail for the first key that was never asked for."""
        for key in self._values:
            if key not in self._asked:
                near = difflib.get_close_matches(key[:80], self._asked, 1)
                hint = f"did you mean '{near[0]}'?" if near else "use " + ", ".join(self._asked)
                self.fail(one_line(key, 80), f"unknown key; {hint}")

    def get(self, key: str) -> object:
        """The raw value, `None` where the key is missing."""
        self._asked[key] = None
        return self._values.get(key)

    def text(self, key: str) -> str:
        """A required string."""
        value = self.get(key)
        if value is None:
            self.fail(key, "is missing")
        if not isinstance(value, str):
            self.fail(key, f"must be a string, not {_kind(value)}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings, empty where the key is missing."""
        value = self.get(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.fail(key, f"must be a list of strings, not {_kind(value)}")
        for index, item in enumerate(value):
            if not isinstance(item, str):
                at, shown = (*self._at, key, index), f"{self._below(key)}[{index + 1}]"
                self._fail(at, shown, f"must be a string, not {_kind(item)}")
        return tuple(value)

    def count(self, key: str, most: int) -> int | None:
        """A whole number from 1 to `most`, `None` where the key is missing."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            self.fail(key, f"must be a whole number, not {_kind(value)}")
        if not 1 <= value <= most:
            self.fail(key, f"must be from 1 to {most}")
        return value

    def seconds(self, key: str) -> float | None:
        """A duration such as "90s", "30m" or "1h30m", `None` where the key is missing."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            self.fail(key, f'must be a duration such as "90s" or "1h30m", not {_kind(value)}')
        parts = _DURATION.fullmatch(value)
        if not value or parts is None:
            shown = one_line(repr(value), 40)
            self.fail(key, f'{shown} is not a duration such as "90s", "30m" or "1h30m"')
        hours, minutes, seconds = (float(part or 0) for part in parts.groups())
        total = hours * 3600 + minutes * 60 + seconds
        if not 0 < total <= _LONGEST:
            self.fail(key, "must be more than nothing and at most a year")
        return total

    def table(self, key: str) -> Table:
        """A table inside this one, empty where the key is missing."""
        value = self.get(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            self.fail(key, f"must be a table ([{key}]), not {_kind(value)}")
        return Table(value, (*self._at, key), self._below(key), self._fail)

    def tables(self, key: str) -> tuple[Table, ...]:
        """An array of tables, empty where the key is missing; its elements count from 1."""
        value = self.get(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.fail(key, f"must be tables ([[{key}]]), not {_kind(value)}")
        found = []
        for index, item in enumerate(value):
            at, name = (*self._at, key, index), f"{self._below(key)}[{index + 1}]"
            if not isinstance(item, dict):
                self._fail(at, name, f"must be a table ([[{key}]]), not {_kind(item)}")
            found.append(Table(item, at, name, self._fail))
        return tuple(found)

    def flag(self, key: str, usual: bool) -> bool:
        """True or false."""
        value = self.get(key)
        if value is None:
            return usual
        if not isinstance(value, bool):
            self.fail(key, f"must be true or false, not {_kind(value)}")
        return value

    def _below(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def _kind(value: object) -> str:
    """What people call a TOML value of this type."""
    match value:
        case bool():
            return "true or false"
        case int():
            return "a whole number"
        case float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return "a date or time"
