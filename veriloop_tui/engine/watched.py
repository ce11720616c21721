"""Connections that look up from waiting: each read asks, every 50 ms, whether to go on."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import httpcore

_SLICE_SECONDS: Final = 0.05

Watch = Callable[[], None]


class RequestCancelled(Exception):
    """Whoever asked has given up; raised by a watch."""


class WatchedStream(httpcore.NetworkStream):
    """A connection whose reads call `watch`; what that raises ends the request."""

    def __init__(self, inner: httpcore.NetworkStream, watch: Watch) -> None:
        self._inner, self._watch = inner, watch

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Bytes as they arrive. Raises `httpcore.ReadTimeout`, or what the watch raises."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._watch()
            try:
                return self._inner.read(max_bytes, timeout=_SLICE_SECONDS)
            except httpcore.ReadTimeout:
                if deadline is not None and time.monotonic() > deadline:
                    raise

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of `buffer`."""
        self._inner.write(buffer, timeout=timeout)

    def close(self) -> None:
        """Close the connection, which tells the server to stop."""
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """The same connection, encrypted and still watched."""
        inner = self._inner.start_tls(ssl_context, server_hostname, timeout)
        return WatchedStream(inner, self._watch)

    def get_extra_info(self, info: str) -> Any:
        """What httpcore wants to know of the socket."""
        return self._inner.get_extra_info(info)


class WatchedBackend(httpcore.NetworkBackend):
    """Makes watched connections."""

    def __init__(self, watch: Watch) -> None:
        self._inner = httpcore.SyncBackend()
        self._watch = watch

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to a host."""
        inner = self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        return WatchedStream(inner, self._watch)

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to a Unix socket."""
        inner = self._inner.connect_unix_socket(path, timeout, socket_options)
        return WatchedStream(inner, self._watch)
