"""The user's settings, from command line, environment and two TOML files, in that order.

The workspace's file, `veriloop-settings.toml`, may come from someone else, so it can choose how
to ask a model but not how commands are isolated, what is loaded from disk, or where data goes.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args
from urllib.parse import urlsplit

import platformdirs

from veriloop_tui.errors import SettingsError

# Beyond this a draft hardly ever holds to its end, and each token costs a copy of recurrent state.
MAX_DRAFT = 16

Sandbox = Literal["best", "reduced", "none"]
EditFormat = Literal["auto", "search-replace", "function", "file"]
Speculation = Literal["auto", "always", "off"]
KVType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
FlashAttention = Literal["auto", "on", "off"]
SplitMode = Literal["layer", "row", "none"]
Source = Literal["flag", "environment", "workspace", "user", "default"]

WORKSPACE_FILE = "veriloop-settings.toml"
PREFIX = "VERILOOP_"
DEFAULT_MODEL = "veriloop-e2:Q6_K"
MAX_BYTES = 64_000

_FREE_FOR_WORKSPACE = frozenset({"model", "edit_format", "temperature", "attempts"})
_PATH_LIKE = re.compile(r"^[./~\\]|\\|\.gguf$|^(?!hf:).*/", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user chose. `None` leaves the model's, the engine's or the contract's own value.

    `n_ctx` in tokens; `gpu_layers` −1 means all, `None` what fits; `draft` refers to a draft head,
    empty for the one that goes with the model, "none" for none; `server` is the URL of another
    engine, empty for our own, and `server_model` what it calls the model; `sources` tells where
    each value came from.
    """

    model: str
    draft: str
    draft_max: int
    speculation: Speculation
    lookup: bool
    parallel: int | None
    type_k: KVType
    type_v: KVType
    flash_attention: FlashAttention
    devices: tuple[str, ...]
    split_mode: SplitMode
    tensor_split: tuple[float, ...]
    server: str
    server_model: str
    sandbox: Sandbox
    edit_format: EditFormat
    temperature: float | None
    n_ctx: int | None
    threads: int | None
    gpu_layers: int | None
    attempts: int | None
    data_dir: Path
    theme: str
    sources: Mapping[str, Source]


def user_file() -> Path:
    """The user's settings file in the platform's configuration folder; it need not exist."""
    return platformdirs.user_config_path("veriloop", appauthor=False) / "settings.toml"


def load_settings(
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    workspace: Path | None,
    user: Path,
) -> Settings:
    """The settings in force. A flag of `None` was not given.

    `user` is the user's file, `workspace` the workspace's folder. Raises `SettingsError`, which
    names where the wrong value stands.
    """
    layers: list[tuple[Source, str, Mapping[str, object]]] = [
        ("flag", "command line", {k: v for k, v in flags.items() if v is not None}),
        ("environment", "environment", _from_environment(environ)),
    ]
    if workspace is not None:
        path = workspace / WORKSPACE_FILE
        layers.append(("workspace", WORKSPACE_FILE, _only_harmless(_read(path))))
    layers.append(("user", str(user), _read(user)))

    values: dict[str, object] = dict(_DEFAULTS)
    sources: dict[str, Source] = dict.fromkeys(_DEFAULTS, "default")
    for source, where, layer in reversed(layers):
        for key, value in layer.items():
            shown = PREFIX + key.upper() if source == "environment" else key
            if key not in _READERS:
                raise SettingsError(where, shown, f"unknown; use {', '.join(_READERS)}")
            try:
                values[key] = _READERS[key](value)
            except ValueError as problem:
                raise SettingsError(where, shown, str(problem)) from problem
            sources[key] = source
    return Settings(**values, sources=MappingProxyType(sources))  # type: ignore[arg-type]


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    return {
        key.removeprefix(PREFIX).lower(): _from_text(value)
        for key, value in environ.items()
        if key.startswith(PREFIX) and key.removeprefix(PREFIX).lower() in _READERS
    }


def _from_text(text: str) -> object:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _only_harmless(values: Mapping[str, object]) -> Mapping[str, object]:
    for key, value in values.items():
        if key in _READERS and key not in _FREE_FOR_WORKSPACE:
            raise SettingsError(WORKSPACE_FILE, key, "a workspace may not set this")
        if key == "model" and isinstance(value, str) and _PATH_LIKE.search(value):
            raise SettingsError(WORKSPACE_FILE, key, "a workspace may not name a file")
    return values


def _read(path: Path) -> Mapping[str, object]:
    try:
        # A pipe in its place must not make us wait for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsError(str(path), "file", f"cannot be read ({error.strerror})") from error
    if len(content) > MAX_BYTES:
        raise SettingsError(str(path), "file", f"is larger than {MAX_BYTES} bytes")
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise SettingsError(str(path), "file", f"is not valid TOML ({error})") from error


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be text")
    return value


def _whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return read


def _temperature(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 5:
        raise ValueError("must be a number from 0 to 5")
    return float(value)


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError("must be true or false")


def _maybe_text(value: object) -> str:
    if value == "":
        return ""
    return _text(value).strip()


def _server(value: object) -> str:
    url = _maybe_text(value)
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError("must be a URL such as http://127.0.0.1:8001")
    if parts.username or parts.password:
        raise ValueError("must not hold a password; set VERILOOP_SERVER_KEY")
    return url


def _names(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(one, str) for one in items):
        raise ValueError("must be names with commas between them")
    return tuple(one.strip() for one in items if one.strip())


def _shares(value: object) -> tuple[float, ...]:
    items = value.split(",") if isinstance(value, str) else value
    many = items if isinstance(items, list | tuple) else [items]
    try:
        shares = tuple(float(one) for one in many)
    except (TypeError, ValueError):
        raise ValueError("must be numbers with commas between them") from None
    if any(not 0 <= one < float("inf") for one in shares):
        raise ValueError("must be shares of 0 or more")
    return shares


def _one_of(choices: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return str(value)

    return read


def _folder(value: object) -> Path:
    path = value if isinstance(value, Path) else Path(_text(value)).expanduser()
    if not path.is_absolute():
        raise ValueError("must be an absolute path")
    return path


_READERS: Mapping[str, Callable[[object], object]] = {
    "model": _text,
    "draft": _maybe_text,
    "draft_max": _whole(1, MAX_DRAFT),
    "speculation": _one_of(get_args(Speculation)),
    "lookup": _switch,
    "parallel": _whole(1, 64),
    "type_k": _one_of(get_args(KVType)),
    "type_v": _one_of(get_args(KVType)),
    "flash_attention": _one_of(get_args(FlashAttention)),
    "devices": _names,
    "split_mode": _one_of(get_args(SplitMode)),
    "tensor_split": _shares,
    "server": _server,
    "server_model": _maybe_text,
    "sandbox": _one_of(get_args(Sandbox)),
    "edit_format": _one_of(get_args(EditFormat)),
    "temperature": _temperature,
    "n_ctx": _whole(256, 2**24),
    "threads": _whole(1, 1024),
    "gpu_layers": _whole(-1, 10_000),
    "attempts": _whole(1, 10**9),
    "data_dir": _folder,
    "theme": _text,
}
_DEFAULTS: Mapping[str, object] = {
    "model": DEFAULT_MODEL,
    "draft": "",
    "draft_max": 8,
    "speculation": "auto",
    "lookup": True,
    "parallel": None,
    "type_k": "f16",
    "type_v": "f16",
    "flash_attention": "auto",
    "devices": (),
    "split_mode": "layer",
    "tensor_split": (),
    "server": "",
    "server_model": "",
    "sandbox": "best",
    "edit_format": "auto",
    "temperature": None,
    "n_ctx": None,
    "threads": None,
    "gpu_layers": None,
    "attempts": None,
    "data_dir": platformdirs.user_data_path("veriloop", appauthor=False),
    "theme": "textual-dark",
}
