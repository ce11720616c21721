"""Where the engine listens, and who may reach it there."""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import UsageError

KEY_VARIABLE: Final = "VERILOOP_API_KEY"
MIN_PUBLIC_KEY: Final = 16


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """What to serve and where: on `socket_path`, or on `host` and `port` with a key."""

    load: LoadSettings
    socket_path: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    api_key: str = field(default="", repr=False)


def listen(settings: ServeSettings) -> socket.socket:
    """The listening socket: a Unix socket of mode 0600, or an address of this machine.

    Raises `UsageError` where it cannot be had, or where too weak a key would guard it.
    """
    try:
        if settings.socket_path is None:
            return _listen_tcp(settings)
        return _listen_unix(settings.socket_path)
    except OSError as problem:
        where = settings.socket_path or f"{settings.host}:{settings.port}"
        reason = problem.strerror or problem
        raise UsageError(f"The engine cannot listen on {where}: {reason}.") from problem


def where(settings: ServeSettings, listener: socket.socket) -> str:
    """The address as a client needs it."""
    if settings.socket_path is not None:
        return str(settings.socket_path)
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _listen_unix(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_socket():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise UsageError(f"Another engine listens on {path}; end that one first.")
        path.unlink()
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    return listener


def _listen_tcp(settings: ServeSettings) -> socket.socket:
    try:
        address = ipaddress.ip_address(settings.host)
    except ValueError:
        raise UsageError(f"'{settings.host}' is not an IP address.") from None
    if not settings.api_key:
        raise UsageError(f"A TCP port needs a key: set {KEY_VARIABLE}, or use --socket.")
    if not address.is_loopback and len(settings.api_key) < MIN_PUBLIC_KEY:
        raise UsageError(
            f"{settings.host} can be reached from other machines, so the key must have at least "
            f"{MIN_PUBLIC_KEY} characters; nothing is encrypted, so an SSH tunnel is better."
        )
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((settings.host, settings.port))
    return listener
