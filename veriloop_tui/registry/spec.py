"""`models.toml`: the models that are known by name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from veriloop_tui.errors import SettingsError

_PACKAGE: Final = Path(__file__).parents[1]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class QuantFacts(_Entry):
    """What is known of one published file: size in GiB, effective bits per weight."""

    gib: float | None = None
    bpw: float | None = None
    note: str = ""


class SamplingFacts(_Entry):
    """Sampler settings that suit a model; `None` leaves the program's own."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None


class _ModelEntry(_Entry):
    title: str
    base: str
    parameters: str
    default_quant: str
    licence: str = ""
    kind: str = "dense"
    memory_gb: int | None = None
    drafts: list[str] = []
    repo: str = ""
    weights: str = ""
    package: str = ""
    file: str = "*.gguf"
    native_context: int | None = None
    verified_context: int | None = None
    quants: dict[str, QuantFacts] = {}
    sampling: SamplingFacts = SamplingFacts()


class _Document(_Entry):
    models: dict[str, _ModelEntry]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One entry of `models.toml`. Contexts in tokens, `None` where not known.

    The file comes from the Hugging Face repository `repo` or from the Python package `package`,
    whichever is not empty. `memory_gb` is the class of memory that its default quant suits.
    """

    name: str
    title: str
    repo: str
    package: str
    file: str
    base: str
    licence: str
    native_context: int | None
    verified_context: int | None
    default_quant: str
    drafts: tuple[str, ...]
    quants: Mapping[str, QuantFacts]
    sampling: SamplingFacts
    parameters: str = ""
    kind: str = "dense"
    memory_gb: int | None = None
    weights: str = ""


def registry_file() -> Path:
    """`models.toml`: in the package of a wheel, at the repository's root when editable."""
    packaged = _PACKAGE / "models.toml"
    return packaged if packaged.is_file() else _PACKAGE.parent / "models.toml"


def read_registry(file: Path) -> Mapping[str, ModelSpec]:
    """The models by name. Raises `SettingsError` for a file that is missing or wrong."""
    try:
        document = _Document.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise SettingsError(str(file), key, first["msg"]) from error
    except (OSError, ValueError) as error:
        raise SettingsError(str(file), "models", str(error)) from error
    return {name: _spec(name, entry) for name, entry in document.models.items()}


def _spec(name: str, entry: _ModelEntry) -> ModelSpec:
    return ModelSpec(
        name=name,
        title=entry.title,
        repo=entry.repo,
        package=entry.package,
        file=entry.file,
        base=entry.base,
        licence=entry.licence,
        native_context=entry.native_context,
        verified_context=entry.verified_context,
        default_quant=entry.default_quant,
        drafts=tuple(entry.drafts),
        quants=entry.quants,
        sampling=entry.sampling,
        parameters=entry.parameters,
        kind=entry.kind,
        memory_gb=entry.memory_gb,
        weights=entry.weights,
    )
