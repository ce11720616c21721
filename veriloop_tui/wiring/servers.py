"""Other servers: which of them the user lets the workspace's text go to, and asking them.

What was allowed stands in one file in the user's data folder. A file that is damaged, or that
others may write, allows nothing: the user is asked again.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veriloop_tui.config import Settings
from veriloop_tui.core.ports import Cancel
from veriloop_tui.engine.client.address import Address, parse_address
from veriloop_tui.engine.client.client import Endpoint
from veriloop_tui.engine.client.probe import ProbedModel, probe
from veriloop_tui.errors import ServerNotAllowed, UsageError

ALLOWED_FILE: Final = "servers.json"
_KEPT: Final = 200


@dataclass(frozen=True, slots=True)
class ServerQuestion:
    """What the user is to read before a server may be sent the text of workspaces."""

    origin: str
    allowed: bool
    lines: tuple[str, ...]


class Deadline:
    """A `Cancel` that also sets itself after some seconds."""

    def __init__(self, cancel: Cancel | None, seconds: float) -> None:
        self._cancel, self._end = cancel, time.monotonic() + seconds

    def is_set(self) -> bool:
        """Whether it was asked for, or time is up."""
        asked = self._cancel is not None and self._cancel.is_set()
        return asked or time.monotonic() > self._end


def question(data_dir: Path, url: str) -> ServerQuestion:
    """What to ask about the server at `url`. Raises `UsageError`."""
    address = parse_address(url)
    lines = [
        f"{address.origin} would be sent the task, the names and contents of the workspace's",
        "files, and the output of its tests: whatever a model is shown. This holds for every",
        "workspace, until the line is taken out of " + str(data_dir / ALLOWED_FILE) + ".",
    ]
    if not address.encrypted:
        lines.append(
            "Warning: the connection is not encrypted. Whoever is on the way can read the text and "
            "the key, and can answer in the server's place; an SSH tunnel or https prevents that."
        )
    if address.loopback:
        lines = [f"{address.origin} is this machine; it may be used without asking."]
    return ServerQuestion(address.origin, is_allowed(data_dir, address), tuple(lines))


def allow(data_dir: Path, url: str) -> None:
    """Remember that the user allowed the server at `url`. Raises `UsageError`."""
    origin = parse_address(url).origin
    origins = (*(one for one in _read(data_dir) if one != origin), origin)[-_KEPT:]
    path = data_dir / ALLOWED_FILE
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkstemp makes the file with mode 0600.
        handle, name = tempfile.mkstemp(prefix=ALLOWED_FILE, dir=data_dir)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                json.dump({"version": 1, "origins": origins}, out, indent=1)
                out.flush()
                os.fsync(out.fileno())
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as problem:
        raise UsageError(f"{path} cannot be written: {problem.strerror}.") from problem


def is_allowed(data_dir: Path, address: Address) -> bool:
    """Whether text may go there: to this machine always, elsewhere after the user's consent."""
    return address.loopback or address.origin in _read(data_dir)


def endpoint(settings: Settings) -> Endpoint:
    """The server that the settings name, if it may be used.

    Raises `UsageError`, `ServerNotAllowed`.
    """
    address = parse_address(settings.server)
    if not is_allowed(settings.data_dir, address):
        raise ServerNotAllowed(address.origin)
    return Endpoint(base_url=address.base, api_key=settings.server_key, model=settings.server_model)


def ask(settings: Settings, cancel: Cancel) -> ProbedModel:
    """The server that the settings name, probed. Raises what `endpoint` and `probe` raise."""
    return ProbedModel(probe(endpoint(settings), cancel))


def _read(data_dir: Path) -> tuple[str, ...]:
    path = data_dir / ALLOWED_FILE
    try:
        facts = path.stat(follow_symlinks=False)
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ()
    foreign = facts.st_uid != os.getuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if foreign or not stat.S_ISREG(facts.st_mode) or not isinstance(content, dict):
        return ()
    origins = content.get("origins")
    return (
        tuple(one for one in origins if isinstance(one, str)) if isinstance(origins, list) else ()
    )
