"""Making quants of a base: planned first with a dry run, then written one after the other.

A quant is written under a temporary name, checked against its own header, flushed to the disk and
renamed; whatever happens before that, nothing stands under the final name.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import psutil

from quant.inspect_read import ModelFiles, read_model
from quant.make_child import Worker
from quant.make_imatrix import read_imatrix
from quant.make_log import (
    Failed,
    FellBack,
    ImatrixNeeded,
    Step,
    TensorBegun,
    TensorDone,
    Unweighted,
    from_line,
)
from quant.make_output import Reserved, reserved
from quant.make_target import FILE_TYPES, Order, Recipe, Target, check
from veriloop_tui.core.ports import Cancel
from veriloop_tui.engine.gguf_facts import check_loadable
from veriloop_tui.engine.gguf_types import row_size
from veriloop_tui.errors import DiskTooSmall, ModelFileInvalid, QuantNotMade, UsageError

Existing = Literal["refuse", "keep", "replace"]

_WORKER: Final = "quant.make_worker"
_ALIGNMENT: Final = 32
_LABEL: Final = re.compile(rf"[-._](?:{'|'.join(FILE_TYPES)})$", re.IGNORECASE)
_LEAST_BUFFER: Final = 256 << 20
_MOST_BUFFER: Final = 8 << 30
# A disk that is filled to the last byte troubles everybody else on it.
_SPARE_BYTES: Final = 64 << 20
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Planned:
    """One quant to make: `predicted` bytes, `types` of its tensors by name.

    `fallbacks` are tensors whose shape does not fit the type; `kept` says that a file of this name
    is there already and stays as it is.
    """

    target: Target
    path: Path
    predicted: int
    types: tuple[tuple[str, str], ...]
    fallbacks: tuple[str, ...]
    kept: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a run is going to make, and what the user should know before."""

    base: ModelFiles
    recipe: Recipe
    quants: tuple[Planned, ...]
    notices: tuple[str, ...]

    @property
    def needed(self) -> int:
        """Bytes that the quants will take up."""
        return sum(one.predicted for one in self.quants if not one.kept)


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


def free_bytes(folder: Path) -> int:
    """The bytes that are free on a folder's disk."""
    return shutil.disk_usage(folder).free


def plan(
    base: Path,
    folder: Path,
    targets: tuple[Target, ...],
    recipe: Recipe,
    existing: Existing,
    cancel: Cancel,
    free: Callable[[Path], int] = free_bytes,
) -> Plan:
    """Run everything dry: sizes, disk, and every reason why it would fail hours later.

    `free` tells the bytes that a folder has room for.

    Raises `UsageError`, `ModelNotFound`, `ModelFileInvalid`, `ImatrixInvalid`, `DiskTooSmall`,
    `QuantNotMade`, `Cancelled`.
    """
    check(targets, recipe)
    model = read_model(base)
    if not model.facts.draft_head_only:
        # A draft head cannot be run alone, but it can be quantised. Whatever else may be wrong with
        # one is llama.cpp's to find, in a process of its own.
        check_loadable(model.facts)
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; make it first, or name another with --out.")
    notices = _imatrix_notices(model, recipe)
    quants: list[Planned] = []
    for target in targets:
        path = folder / quant_name(model, target)
        kept = _stays(path, model, existing)
        quants.append(_dry_run(model, path, target, recipe, kept, cancel))
    made = Plan(model, recipe, tuple(quants), notices)
    if made.needed and (room := free(folder)) < made.needed + _SPARE_BYTES:
        raise DiskTooSmall(str(folder), made.needed + _SPARE_BYTES, room)
    return made


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


def quant_name(base: ModelFiles, target: Target) -> str:
    """The file name of a quant: the base's with the new type at its end."""
    return f"{_LABEL.sub('', base.name)}-{target.label}.gguf"


def _imatrix_notices(model: ModelFiles, recipe: Recipe) -> tuple[str, ...]:
    if recipe.imatrix is None:
        return ()
    imatrix = read_imatrix(recipe.imatrix)
    names = {tensor.name for tensor in model.tensors}
    known = [name for name in imatrix.weights if name in names]
    if not known:
        raise UsageError(
            f"{recipe.imatrix} knows none of the tensors of {model.name}; "
            "use the importance matrix of this very model."
        )
    seen = f"{imatrix.chunks} chunks" if imatrix.chunks else "an unknown number of chunks"
    of = f" of {', '.join(imatrix.datasets)}" if imatrix.datasets else ""
    return (f"The importance matrix weighs {len(known)} tensors; it saw {seen}{of}.",)


def _stays(path: Path, model: ModelFiles, existing: Existing) -> bool:
    if not path.exists():
        return False
    if any(path.samefile(one) for one in model.paths):
        raise UsageError(f"{path} is the base itself; name another folder with --out.")
    match existing:
        case "refuse":
            raise UsageError(
                f"{path} exists already; pass --existing keep or --existing replace, "
                "or name another folder with --out."
            )
        case "keep":
            return True
        case "replace":
            return False


def _dry_run(
    model: ModelFiles,
    path: Path,
    target: Target,
    recipe: Recipe,
    kept: bool,
    cancel: Cancel,
) -> Planned:
    order = Order(model.paths[0], path, target.number, recipe, True, _LEAST_BUFFER)
    types: dict[str, str] = {}
    fallbacks: list[str] = []
    for step in _steps(path, order, cancel):
        match step:
            case TensorDone(name=name, before=before, after=after):
                if before != after and before not in ("F32", "F16", "BF16"):
                    _refuse_requantising(model, before, recipe)
                types[name] = after
            case FellBack(name=name):
                fallbacks.append(name)
            case ImatrixNeeded():
                if recipe.imatrix is None:
                    raise UsageError(
                        f"{target.label} comes out as garbage without an importance matrix; "
                        "pass one with --imatrix."
                    )
            case Failed(problem=problem):
                raise QuantNotMade(str(path), problem)
            case TensorBegun() | Unweighted():
                pass
    return Planned(
        target=target,
        path=path,
        predicted=_predicted(model, types),
        types=tuple(types.items()),
        fallbacks=tuple(fallbacks),
        kept=kept,
    )


def _refuse_requantising(model: ModelFiles, type_name: str, recipe: Recipe) -> None:
    if not recipe.requantise:
        raise UsageError(
            f"{model.name} holds {type_name} tensors, so it is a quant itself; use its F16 or "
            "BF16 file, or pass --requantise and know that the losses add up."
        )


def _predicted(model: ModelFiles, types: dict[str, str]) -> int:
    """Bytes of the file, apart from a few entries that llama.cpp adds to its header."""
    total = sum(part.header_size for part in model.facts.parts)
    for tensor in model.tensors:
        kept = types.get(tensor.name) in (None, tensor.type_name)
        size = tensor.size if kept else int(row_size(types[tensor.name], tensor.elements))
        total += -(-size // _ALIGNMENT) * _ALIGNMENT
    return total


def _write(
    one: Planned, output: Reserved, order: Order, cancel: Cancel
) -> Generator[Working, None, tuple[str, ...]]:
    unweighted: list[str] = []
    try:
        for step in _steps(one.path, order, cancel, (output.descriptor,)):
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


def _steps(
    path: Path, order: Order, cancel: Cancel, inherited: tuple[int, ...] = ()
) -> Iterator[Step]:
    """What the worker tells, to its end. Raises `QuantNotMade`, `Cancelled`."""
    worker = Worker(_WORKER, order.to_json(), inherited)
    told = None
    for line in worker.lines(cancel):
        told = from_line(line)
        yield told
    if worker.ending:
        raise QuantNotMade(str(path), worker.ending, worker.last_words)


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
