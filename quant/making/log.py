"""llama.cpp's log of a quantisation, read as steps: there is no other report of its progress."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

ERROR: Final = 3
_MAX_LINE: Final = 64_000
_HEAD: Final = re.compile(
    r"\[ *(?P<index>\d+)/ *(?P<of>\d+)\] (?P<name>.*?) +- \[[\d, ]*\], type = +(?P<type>\S+), "
)
_CONVERTING: Final = re.compile(r"converting to (?P<type>\S+) \.\. ")
_DRY: Final = re.compile(r"size = .* -> .* \((?P<type>\S+)\)$")
_SIZE: Final = re.compile(r"size = +[\d.]+ MiB")
_FALLBACK: Final = re.compile(
    r"warning: (?P<name>.*?) +- ncols .*? -> falling back to +(?P<type>\S+)$"
)
_UNWEIGHTED: Final = re.compile(r"=+ \S+ did not find weights for (?P<name>.*)$")
_NEEDS_IMATRIX: Final = re.compile(r"will require an imatrix|Missing importance matrix for tensor")
_FAILED: Final = re.compile(r"failed to quantize: (?P<problem>.*)$")


@dataclass(frozen=True, slots=True)
class TensorBegun:
    """Tensor `index` of `of` is being worked on."""

    index: int
    of: int
    name: str


@dataclass(frozen=True, slots=True)
class TensorDone:
    """A tensor is written (or counted, in a dry run), as `after` instead of `before`."""

    index: int
    of: int
    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class FellBack:
    """The shape of a tensor does not fit its type, so it got another one."""

    name: str
    type_name: str


@dataclass(frozen=True, slots=True)
class Unweighted:
    """The importance matrix does not know a tensor."""

    name: str


@dataclass(frozen=True, slots=True)
class ImatrixNeeded:
    """The type comes out as garbage without an importance matrix."""


@dataclass(frozen=True, slots=True)
class Failed:
    """llama.cpp gave up, in its own words."""

    problem: str


Step = TensorBegun | TensorDone | FellBack | Unweighted | ImatrixNeeded | Failed
_STEPS: Final = {
    one.__name__: one
    for one in (TensorBegun, TensorDone, FellBack, Unweighted, ImatrixNeeded, Failed)
}


class LogReader:
    """Turns the pieces of text that the log callback gets into steps."""

    def __init__(self) -> None:
        self._line = ""
        self._head: re.Match[str] | None = None
        self._after = ""
        self._announced = False

    def feed(self, text: str) -> Iterator[Step]:
        """The steps that `text` completes."""
        *lines, rest = (self._line + text).split("\n")
        for line in lines:
            yield from self._begun(line)
            yield from self._whole(line)
            self._announced = False
        self._line = rest[-_MAX_LINE:]
        yield from self._begun(self._line)

    def _begun(self, line: str) -> Iterator[Step]:
        if self._announced or (head := _HEAD.match(line)) is None:
            return
        self._announced = True
        self._head, self._after = head, ""
        yield TensorBegun(int(head["index"]), int(head["of"]), head["name"])

    def _whole(self, line: str) -> Iterator[Step]:
        line = line.rstrip("\r")
        if _HEAD.match(line) or line.startswith(("converting to", "size = ")):
            yield from self._worked(line)
        elif fallback := _FALLBACK.match(line):
            yield FellBack(fallback["name"], fallback["type"].upper())
        elif unweighted := _UNWEIGHTED.match(line):
            yield Unweighted(unweighted["name"])
        elif _NEEDS_IMATRIX.search(line):
            yield ImatrixNeeded()
        elif failed := _FAILED.search(line):
            yield Failed(failed["problem"])

    def _worked(self, line: str) -> Iterator[Step]:
        """The end of a tensor's line, which a message may have broken in two."""
        head = self._head
        if head is None:
            return
        rest = line[head.end() :] if _HEAD.match(line) else line
        if converting := _CONVERTING.match(rest):
            self._after = converting["type"]
            rest = rest[converting.end() :]
        if not _SIZE.match(rest):
            return
        dry = _DRY.match(rest)
        before = head["type"]
        after = dry["type"] if dry else self._after or before
        yield TensorDone(
            int(head["index"]), int(head["of"]), head["name"], before.upper(), after.upper()
        )
        self._head = None


def to_line(step: Step) -> str:
    """A step as one line of JSON."""
    return json.dumps({"step": type(step).__name__, **asdict(step)})


def from_line(line: str) -> Step:
    """The inverse of `to_line`. Raises `ValueError` for anything else."""
    fields: Any = json.loads(line)
    try:
        return _STEPS[fields.pop("step")](**fields)
    except (TypeError, AttributeError, LookupError) as problem:
        raise ValueError(f"no step: {problem}") from None
