"""What quants are asked for: file types, and tensors that are to get a type of their own."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from veriloop_tui.engine.gguf.kinds import block_size, file_type_name, type_name
from veriloop_tui.errors import UsageError

_MOST_TYPES: Final = 256
_ALIASES: Final = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M", "MXFP4": "MXFP4_MOE"}
# llama.cpp reads these and has no way to make them.
_NOT_MADE: Final = frozenset({"NVFP4"})
_UNQUANTISED: Final = frozenset({"F32", "F16", "BF16"})
_NO_WEIGHTS: Final = frozenset({"I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K", "NVFP4"})

FILE_TYPES: Final = {
    name: number
    for number in range(_MOST_TYPES)
    if (name := file_type_name(number)) is not None and name not in _NOT_MADE
}
_TENSOR_TYPES: Final = {
    type_name(number): number
    for number in range(_MOST_TYPES)
    if block_size(number) is not None and type_name(number) not in _NO_WEIGHTS
}


@dataclass(frozen=True, slots=True)
class Target:
    """A file type to make: its usual name and llama.cpp's number for it."""

    label: str
    number: int

    @property
    def quantised(self) -> bool:
        """Whether the type is a quantised one; only those follow overrides."""
        return self.label not in _UNQUANTISED


@dataclass(frozen=True, slots=True)
class Override:
    """Tensors whose name `pattern` finds (ECMAScript regular expression) get the named type."""

    pattern: str
    type_name: str

    @property
    def number(self) -> int:
        """llama.cpp's number of the tensor type."""
        return _TENSOR_TYPES[self.type_name]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How quants are made, beside their file type.

    `output_type` and `embedding_type` are tensor types, empty for llama.cpp's own choice; `pure`
    gives every tensor the file type's own type; `requantise` allows a base that is quantised
    itself; `threads` 0 means one per core.
    """

    overrides: tuple[Override, ...] = ()
    imatrix: Path | None = None
    output_type: str = ""
    embedding_type: str = ""
    pure: bool = False
    requantise: bool = False
    threads: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """One quant for the worker to make; `buffer` is the most bytes of rows held at once."""

    base: Path
    output: Path
    number: int
    recipe: Recipe
    dry_run: bool
    buffer: int

    def to_json(self) -> str:
        """The order as the worker reads it."""
        return json.dumps(dataclasses.asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Order:
        """The inverse of `to_json`."""
        fields: dict[str, Any] = json.loads(text)
        recipe: dict[str, Any] = fields.pop("recipe")
        recipe["overrides"] = tuple(Override(**one) for one in recipe["overrides"])
        recipe["imatrix"] = Path(recipe["imatrix"]) if recipe["imatrix"] else None
        base, output = Path(fields.pop("base")), Path(fields.pop("output"))
        return cls(base=base, output=output, recipe=Recipe(**recipe), **fields)


def parse_targets(text: str) -> tuple[Target, ...]:
    """The file types of a list such as `Q8_0,Q4_K_M`. Raises `UsageError`."""
    labels = [part.strip().upper() for part in text.split(",") if part.strip()]
    targets = tuple(_target(label) for label in labels)
    if not targets:
        raise UsageError("No type was named; pass some, such as --types Q8_0,Q6_K,Q4_K_M.")
    if len({target.label for target in targets}) != len(targets):
        raise UsageError("A type is named twice; name each type once.")
    return targets


def parse_override(text: str) -> Override:
    """An override such as `attn_v=Q8_0`. Raises `UsageError`.

    As in llama-quantize the pattern is matched in lower case.
    """
    pattern, equals, wanted = text.rpartition("=")
    if not equals or not pattern:
        raise UsageError(f"'{text}' is no override; write PATTERN=TYPE, such as attn_v=Q8_0.")
    try:
        # Not the same language, but close enough to catch a slip before hours of work.
        re.compile(pattern)
    except re.error as problem:
        raise UsageError(f"'{pattern}' is no regular expression: {problem}.") from None
    if "\0" in pattern:
        raise UsageError("A pattern cannot hold a zero byte; correct the override.")
    return Override(pattern.lower(), tensor_type(wanted))


def tensor_type(text: str) -> str:
    """A tensor type's name as GGUF writes it. Raises `UsageError`."""
    wanted = text.strip().upper()
    if wanted not in _TENSOR_TYPES:
        raise UsageError(f"'{text}' is no tensor type; use one of {', '.join(_TENSOR_TYPES)}.")
    return wanted


def tensor_type_number(name: str) -> int:
    """llama.cpp's number of a tensor type that `tensor_type` has named."""
    return _TENSOR_TYPES[name]


def check(targets: tuple[Target, ...], recipe: Recipe) -> None:
    """Refuse what llama.cpp would silently ignore. Raises `UsageError`."""
    plain = [target.label for target in targets if not target.quantised]
    if plain and recipe.overrides:
        raise UsageError(
            f"{plain[0]} is no quantised type, so overrides would be ignored; "
            "make it in a run of its own."
        )


def _target(label: str) -> Target:
    name = _ALIASES.get(label, label)
    if name not in FILE_TYPES:
        raise UsageError(f"'{label}' is no type to make; use some of {', '.join(FILE_TYPES)}.")
    return Target(name, FILE_TYPES[name])
