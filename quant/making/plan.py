"""What quants will be made, found out by running everything dry."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from quant.inspecting.read import ModelFiles, read_model
from quant.making.imatrix import read_imatrix
from quant.making.log import (
    Failed,
    FellBack,
    ImatrixNeeded,
    Step,
    TensorBegun,
    TensorDone,
    Unweighted,
    from_line,
)
from quant.making.target import FILE_TYPES, Order, Recipe, Target, check
from quant.worker import Worker
from veriloop_tui.core.ports import Cancel
from veriloop_tui.engine.gguf.facts import check_loadable
from veriloop_tui.engine.gguf.kinds import row_size
from veriloop_tui.errors import DiskTooSmall, QuantNotMade, UsageError

Existing = Literal["refuse", "keep", "replace"]

_WORKER: Final = "quant.making.child"
_ALIGNMENT: Final = 32
_LABEL: Final = re.compile(rf"[-._](?:{'|'.join(FILE_TYPES)})$", re.IGNORECASE)
# A dry run reads no weights.
_DRY_BUFFER: Final = 1 << 20
# A disk that is filled to the last byte troubles everybody else on it.
_SPARE_BYTES: Final = 64 << 20


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
    order = Order(model.paths[0], path, target.number, recipe, True, _DRY_BUFFER)
    types: dict[str, str] = {}
    fallbacks: list[str] = []
    for step in steps(path, order, cancel):
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


def steps(
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
