"""Models by name: what `models.toml` says, and where a reference's file is on this disk.

Nothing here uses the network. A reference is a path, `NAME[:QUANT]`, or `hf:OWNER/REPO[:QUANT]`.
"""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, ValidationError

from veriloop_tui.errors import ModelNotFound, SettingsError

_PACKAGE = Path(__file__).parent
_NOT_MODELS = ("mmproj*", "*imatrix*")
_QUANT = re.compile(
    r"(?:^|[-._])((?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_[A-Z]+)*|BF16|F16|F32))(?=[-.]|$)",
    re.IGNORECASE,
)
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})$")
_HUB_REF = re.compile(r"hf:([\w.-]+/[\w.-]+?)(?::([\w-]+))?", re.ASCII)
_NAME_REF = re.compile(r"([\w.-]+?)(?::([\w-]+))?", re.ASCII)


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
    licence: str
    parameters: str
    default_quant: str
    drafts: list[str]
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
    whichever is not empty.
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


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A reference resolved to a file; `spec` is `None` for a model the registry does not know."""

    ref: str
    path: Path
    quant: str
    spec: ModelSpec | None


def registry_file() -> Path:
    """`models.toml`: beside this module in a wheel, at the repository's root when editable."""
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
    )


def resolve(
    ref: str, registry: Mapping[str, ModelSpec], hub_cache: Path | None = None
) -> LocalModel:
    """The file that `ref` means. `hub_cache` is the Hugging Face cache, `None` for the usual one.

    Raises `ModelNotFound`, which names the command that fetches what is missing.
    """
    if ref.startswith("hf:"):
        found = _HUB_REF.fullmatch(ref)
        if found is None:
            raise ModelNotFound(ref, "Write it as hf:OWNER/REPO or hf:OWNER/REPO:QUANT.")
        spec = next((s for s in registry.values() if s.repo == found[1]), None)
        return _from_hub(ref, found[1], found[2] or "", spec, hub_cache)
    named = _NAME_REF.fullmatch(ref)
    if named is not None and (spec := registry.get(named[1])):
        if spec.package:
            return _from_package(ref, spec, named[2] or "")
        return _from_hub(ref, spec.repo, named[2] or "", spec, hub_cache)
    return _from_path(ref, registry)


def quant_of(file_name: str) -> str:
    """The quant that a GGUF's file name tells, empty if it tells none."""
    stem = _SHARD.sub("", PurePosixPath(file_name).name.removesuffix(".gguf"))
    found = _QUANT.findall(stem)
    return str(found[-1]).upper() if found else ""


def _from_path(ref: str, registry: Mapping[str, ModelSpec]) -> LocalModel:
    path = Path(ref).expanduser()
    if path.is_file():
        return LocalModel(ref, path.resolve(), quant_of(path.name), None)
    if ref and path.is_dir():
        raise ModelNotFound(ref, "It is a folder; name the GGUF file in it.")
    if path.suffix == ".gguf" or "/" in ref:
        raise ModelNotFound(ref, "There is no such file; give the path of a GGUF file.")
    known = ", ".join(registry)
    raise ModelNotFound(
        ref, f"Known names are {known}; or give a path to a GGUF file, or hf:OWNER/REPO[:QUANT]."
    )


def _from_package(ref: str, spec: ModelSpec, quant: str) -> LocalModel:
    # find_spec does not import a top-level package, so nothing of it runs.
    module = importlib.util.find_spec(spec.package)
    folders = module.submodule_search_locations if module is not None else None
    files = [path for folder in folders or () for path in sorted(Path(folder).glob(spec.file))]
    wanted = (quant or spec.default_quant).upper()
    for path in files:
        if quant_of(path.name) == wanted:
            return LocalModel(ref, path, wanted, spec)
    if files:
        there = ", ".join(quant_of(path.name) for path in files)
        raise ModelNotFound(ref, f"The installed package has {there}.")
    package = spec.package.replace("_", "-")
    raise ModelNotFound(ref, f"Install it with `python -m pip install {package}`.")


def _from_hub(
    ref: str, repo: str, quant: str, spec: ModelSpec | None, cache: Path | None
) -> LocalModel:
    drafts = spec.drafts if spec is not None else ("mtp-*",)
    files = [(name, path) for name, path in _cached_files(repo, cache) if _is_model(name, drafts)]
    wanted = (quant or (spec.default_quant if spec is not None else "")).upper()
    if not wanted:
        there = {quant_of(name) for name, _ in files}
        if len(there) > 1:
            listed = ", ".join(sorted(there))
            raise ModelNotFound(ref, f"Of it there are {listed}: say which, as {ref}:QUANT.")
        wanted = next(iter(there), "")
    chosen = [(name, path) for name, path in files if quant_of(name) == wanted]
    if whole := _whole_file(chosen):
        return LocalModel(ref, whole, wanted, spec)
    raise ModelNotFound(ref, _how_to_fetch(ref, repo, wanted))


def _how_to_fetch(ref: str, repo: str, quant: str) -> str:
    pattern = f"*{quant}*.gguf" if quant else "*.gguf"
    return (
        f"`veriloop models pull {ref}` arrives with a later version; until then: "
        f"`hf download {repo} --include '{pattern}'`."
    )


def _is_model(name: str, drafts: Iterable[str]) -> bool:
    base = PurePosixPath(name).name
    return base.endswith(".gguf") and not any(
        fnmatchcase(base, pattern) for pattern in (*drafts, *_NOT_MODELS)
    )


def _whole_file(files: list[tuple[str, Path]]) -> Path | None:
    """The single file, or the first of a complete set of shards."""
    for name, path in sorted(files):
        shard = _SHARD.search(name.removesuffix(".gguf"))
        if shard is None:
            return path
        of = int(shard[2])
        stem = name.removesuffix(f"{shard[0]}.gguf")
        wanted = {f"{stem}-{number:05d}-of-{of:05d}.gguf" for number in range(1, of + 1)}
        if int(shard[1]) == 1 and wanted <= {other for other, _ in files}:
            return path
    return None


def _cached_files(repo: str, cache: Path | None) -> list[tuple[str, Path]]:
    """Name in the repository and local path of each file, of the newest revision first."""
    # Imported here: it takes a quarter of a second, and most commands name no model.
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        info = scan_cache_dir(cache)
    except CacheNotFound:
        return []
    revisions = [
        revision
        for cached in info.repos
        if cached.repo_type == "model" and cached.repo_id == repo
        for revision in cached.revisions
    ]
    revisions.sort(key=lambda revision: ("main" in revision.refs, revision.last_modified))
    newest: dict[str, Path] = {}
    for revision in revisions:
        for file in revision.files:
            newest[str(file.file_path.relative_to(revision.snapshot_path))] = file.file_path
    return list(newest.items())
