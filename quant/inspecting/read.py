"""A model's facts with each of its tensors, from the headers of all its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from veriloop_tui.engine.gguf.facts import GGUFFacts, facts_of
from veriloop_tui.engine.gguf.kinds import file_type_name, type_name
from veriloop_tui.engine.gguf.read import Header, Malformed, read_header
from veriloop_tui.engine.gguf.shards import joined, shard_names, stem
from veriloop_tui.engine.gguf.sizes import tensor_size
from veriloop_tui.errors import ModelFileInvalid, ModelNotFound


@dataclass(frozen=True, slots=True)
class TensorBytes:
    """One tensor: `shape` innermost first, `size` in bytes as it is stored."""

    name: str
    type_name: str
    shape: tuple[int, ...]
    elements: int
    size: int


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model in one file or in several; `file_type` is llama.cpp's number, if it is stated."""

    facts: GGUFFacts
    tensors: tuple[TensorBytes, ...]
    file_type: int | None

    @property
    def name(self) -> str:
        """The file's name without its number and ending."""
        return stem(Path(self.facts.path).name)

    @property
    def stated(self) -> str:
        """The file type that the header states, such as `Q4_K_M`, empty where it is silent."""
        return file_type_name(self.file_type) or ""

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files, the one that llama.cpp is given first."""
        return tuple(Path(part.path) for part in self.facts.parts)


def read_model(path: Path) -> ModelFiles:
    """The model that `path` holds or is a part of. Raises `ModelNotFound`, `ModelFileInvalid`."""
    if not path.is_file():
        raise ModelNotFound(str(path), "Check the path.")
    try:
        paths = [path.with_name(name) for name in shard_names(path.name)]
    except Malformed as problem:
        raise ModelFileInvalid(str(path), str(problem)) from None
    for number, one in enumerate(paths, 1):
        if not one.is_file():
            raise ModelFileInvalid(str(path), f"part {number} of {len(paths)} is missing")
    files = [(str(one), *_read(one)) for one in paths]
    facts = facts_of(files)
    for part in facts.parts:
        if part.expected_size > part.size:
            raise ModelFileInvalid(part.path, "it is cut short; download it again")
    headers = [header for _, _, header in files]
    stated = headers[0].values.get("general.file_type")
    return ModelFiles(
        facts=facts,
        tensors=tuple(
            TensorBytes(
                name=tensor.name,
                type_name=type_name(tensor.type_id),
                shape=tensor.dims,
                elements=tensor.elements,
                size=tensor_size(tensor),
            )
            for tensor in joined(headers)
        ),
        file_type=stated if isinstance(stated, int) else None,
    )


def _read(path: Path) -> tuple[int, Header]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            return size, read_header(file, size)
    except Malformed as problem:
        raise ModelFileInvalid(str(path), str(problem)) from None
    except OSError as problem:
        raise ModelFileInvalid(str(path), problem.strerror or str(problem)) from problem
