"""The user's settings, from command line, environment and two TOML files, in that order.

The workspace's file, `veriloop-settings.toml`, may come from someone else, so it can choose how
to ask a model but not how commands are isolated, what is loaded from disk, or where data goes.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

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
NO_DRAFT = "none"

_FREE_FOR_WORKSPACE = frozenset({"model", "edit_format", "temperature", "attempts"})
# A key in a file ends up in backups and in shared dotfiles.
_ENVIRONMENT_ONLY = frozenset({"server_key"})
_PATH_LIKE = re.compile(r"^[./~\\]|\\|\.gguf$|^(?!hf:).*/", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user chose. `None` leaves the model's, the engine's or the contract's own value.

    `server` is the URL of another server, empty for our own engine; `server_model` what it calls
    the model, `server_key` what it asks for. `n_ctx` in tokens; `gpu_layers` −1 means all, `None`
    what fits; `draft` refers to a draft head, empty for the one that goes with the model,
    `NO_DRAFT` for none; `devices` by llama.cpp's names, empty for all; `tensor_split` the share
    of each device; `sources` tells where each value came from.
    """

    model: str
    server: str
    server_model: str
    server_key: str = field(repr=False)
    sandbox: Sandbox
    edit_format: EditFormat
    temperature: float | None
    n_ctx: int | None
    threads: int | None
    gpu_layers: int | None
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

    values: dict[str, object] = {key: setting.default for key, setting in _KEYS.items()}
    sources: dict[str, Source] = dict.fromkeys(_KEYS, "default")
    for source, where, layer in reversed(layers):
        for key, value in layer.items():
            shown = PREFIX + key.upper() if source == "environment" else key
            if key not in _KEYS:
                raise SettingsError(where, shown, f"unknown; use {', '.join(_KEYS)}")
            if key in _ENVIRONMENT_ONLY and source != "environment":
                problem = f"may stand only in the environment, as {PREFIX}{key.upper()}"
                raise SettingsError(where, shown, problem)
            try:
                values[key] = _KEYS[key].read(value)
            except ValueError as problem:
                raise SettingsError(where, shown, str(problem)) from problem
            sources[key] = source
    return Settings(**values, sources=MappingProxyType(sources))  # type: ignore[arg-type]


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    names = {PREFIX + key.upper(): key for key in _KEYS}
    return {
        key: _KEYS[key].from_text(environ[name]) for name, key in names.items() if name in environ
    }


def _only_harmless(values: Mapping[str, object]) -> Mapping[str, object]:
    for key, value in values.items():
        if key in _KEYS and key not in _FREE_FOR_WORKSPACE:
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


def _text_or_none(value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    raise ValueError("must be text")


def _url_or_none(value: object) -> str:
    url = _text_or_none(value)
    if url and not url.startswith(("http://", "https://")):
        raise ValueError("must be a URL such as http://127.0.0.1:8001")
    return url


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("must be true or false")


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


def _one_of(choices: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return str(value)

    return read


def _names(value: object) -> tuple[str, ...]:
    return tuple(_text(item).strip() for item in _items(value))


def _shares(value: object) -> tuple[float, ...]:
    shares = []
    for item in _items(value):
        share = _number(item) if isinstance(item, str) else item
        if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share < 1e6:
            raise ValueError("must be numbers of 0 or more with commas between them")
        shares.append(float(share))
    if shares and not any(shares):
        raise ValueError("must give at least one device a share")
    return tuple(shares)


def _items(value: object) -> list[object]:
    """The items of a list, or of text with commas between them; none of empty text."""
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, str):
        return list(value.split(",")) if value.strip() else []
    raise ValueError("must be a list, or text with commas between the items")


def _folder(value: object) -> Path:
    path = value if isinstance(value, Path) else Path(_text(value)).expanduser()
    if not path.is_absolute():
        raise ValueError("must be an absolute path")
    return path


def _as_text(text: str) -> object:
    return text


def _number(text: str) -> object:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _true_or_false(text: str) -> object:
    return {"true": True, "false": False}.get(text, text)


@dataclass(frozen=True, slots=True)
class _Key:
    """One setting: how a value is read, what holds without one, what environment text means."""

    read: Callable[[object], object]
    default: object = None
    from_text: Callable[[str], object] = _as_text


_KEYS: Mapping[str, _Key] = {
    "model": _Key(_text, DEFAULT_MODEL),
    "server": _Key(_url_or_none, ""),
    "server_model": _Key(_text_or_none, ""),
    "server_key": _Key(_text_or_none, ""),
    "sandbox": _Key(_one_of(get_args(Sandbox)), "best"),
    "edit_format": _Key(_one_of(get_args(EditFormat)), "auto"),
    "temperature": _Key(_temperature, None, _number),
    "n_ctx": _Key(_whole(256, 2**24), None, _number),
    "threads": _Key(_whole(1, 1024), None, _number),
    "gpu_layers": _Key(_whole(-1, 10_000), None, _number),
    "draft": _Key(_text_or_none, ""),
    "draft_max": _Key(_whole(1, MAX_DRAFT), 8, _number),
    "speculation": _Key(_one_of(get_args(Speculation)), "auto"),
    "lookup": _Key(_switch, True, _true_or_false),
    "parallel": _Key(_whole(1, 64), None, _number),
    "type_k": _Key(_one_of(get_args(KVType)), "f16"),
    "type_v": _Key(_one_of(get_args(KVType)), "f16"),
    "flash_attention": _Key(_one_of(get_args(FlashAttention)), "auto"),
    "devices": _Key(_names, ()),
    "split_mode": _Key(_one_of(get_args(SplitMode)), "layer"),
    "tensor_split": _Key(_shares, ()),
    "attempts": _Key(_whole(1, 10**9), None, _number),
    "data_dir": _Key(_folder, platformdirs.user_data_path("veriloop", appauthor=False)),
    "theme": _Key(_text, "textual-dark"),
}
