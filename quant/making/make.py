"""Making the quants of a plan, one after the other.

A quant is written under a temporary name, checked against its own header, flushed to the disk and
renamed; whatever happens before that, nothing stands under the final name.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from quant.inspecting.read import ModelFiles, read_model
from quant.making.log import Failed, FellBack, ImatrixNeeded, TensorBegun, TensorDone, Unweighted
from quant.making.output import Reserved, reserved
from quant.making.plan import Plan, Planned, free_bytes, steps
from quant.making.target import Order
from veriloop_tui.core.ports import Cancel
from veriloop_tui.errors import DiskTooSmall, ModelFileInvalid, QuantNotMade

_LEAST_BUFFER: Final = 256 << 20
_MOST_BUFFER: Final = 8 << 30
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Working:
    """Tensor `index` of `of` of the quant at `path` is being worked on."""

    path: Path
    index: int
    of: int
    name: str


@dataclass(frozen=True, slots=True)
class Made:
    """A quant stands under its name, whole and checked; `size` in bytes."""

    path: Path
    label: str
    size: int
    unweighted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """A file of this name was there already."""

    path: Path


Progress = Working | Made | Kept


def make(planned: Plan, cancel: Cancel) -> Iterator[Progress]:
    """Make what was planned, in its order. Raises `QuantNotMade`, `DiskTooSmall`, `Cancelled`."""
    first = planned.base.paths[0]
    for one in planned.quants:
        if one.kept:
            yield Kept(one.path)
            continue
        with reserved(one.path) as output:
            order = Order(
                first, output.path, one.target.number, planned.recipe, False, _buffer_bytes()
            )
            unweighted = yield from _write(one, output, order, cancel)
            _check_result(planned.base, one, output.path)
            output.publish()
        yield Made(one.path, one.target.label, one.path.stat().st_size, unweighted)


def _write(
    one: Planned, output: Reserved, order: Order, cancel: Cancel
) -> Generator[Working, None, tuple[str, ...]]:
    unweighted: list[str] = []
    try:
        for step in steps(one.path, order, cancel, (output.descriptor,)):
            match step:
                case TensorBegun(index=index, of=of, name=name):
                    yield Working(one.path, index, of, name)
                case Unweighted(name=name):
                    unweighted.append(name)
                case Failed(problem=problem):
                    raise QuantNotMade(str(one.path), problem)
                case TensorDone() | FellBack() | ImatrixNeeded():
                    pass
    except QuantNotMade as failure:
        room = free_bytes(output.path.parent)
        missing = one.predicted - output.path.stat().st_size
        if room < missing:
            raise DiskTooSmall(str(output.path.parent), missing, room) from failure
        raise
    return tuple(unweighted)


def _buffer_bytes() -> int:
    """Half of the memory that is free now, within llama.cpp's own limit."""
    half = int(psutil.virtual_memory().available) // 2
    return max(_LEAST_BUFFER, min(half, _MOST_BUFFER))


def _check_result(base: ModelFiles, one: Planned, path: Path) -> None:
    """Hold the written file against what was planned."""
    try:
        result = read_model(path)
    except ModelFileInvalid as problem:
        raise QuantNotMade(str(one.path), f"the written file is damaged: {problem}") from problem
    if result.file_type != one.target.number:
        raise QuantNotMade(str(one.path), f"its header says '{result.stated}'")
    planned = dict(one.types)
    wrong = [
        tensor.name for tensor in result.tensors if planned.get(tensor.name) != tensor.type_name
    ]
    if wrong or len(result.tensors) != len(base.tensors):
        shown = ", ".join(wrong[:_SHOWN]) or "some are missing"
        raise QuantNotMade(str(one.path), f"its tensors are not those of the plan ({shown})")
