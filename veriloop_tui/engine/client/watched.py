"""Connections that look up from waiting: whatever blocks asks, every 50 ms, whether to go on."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import httpcore

SLICE_SECONDS: Final = 0.05
_JOIN_SECONDS: Final = 1.0
# A socket that nothing was sent on takes this much at once.
_UNBLOCKED_BYTES: Final = 8 << 10

_Result = TypeVar("_Result")


class RequestCancelled(Exception):
    """Whoever asked has given up; raised by a watch."""


class SilentError(Exception):
    """The peer has taken longer than is borne."""


class Watch:
    """Whether a waiting request is to go on, and what has come of it so far."""

    def __init__(
        self,
        ask: Callable[[], None],
        *,
        silence: float | None = None,
        total: float | None = None,
    ) -> None:
        """`ask` raises to end the request. Seconds: `silence` between two pieces, `total` in all;
        `None` bears any."""
        self._ask = ask
        self._silence = silence
        self._began = self._heard_at = time.monotonic()
        self._total = total
        self.heard_any = False

    def look(self) -> None:
        """Raises what `ask` raises, or `SilentError`."""
        self._ask()
        now = time.monotonic()
        if self._silence is not None and now - self._heard_at > self._silence:
            raise SilentError(f"it was silent for {self._silence:.0f} s")
        if self._total is not None and now - self._began > self._total:
            raise SilentError(f"it had not answered after {self._total:.0f} s")

    def heard(self) -> None:
        """Bytes have come."""
        self._heard_at, self.heard_any = time.monotonic(), True

    def bear(self, silence: float | None) -> None:
        """From now on bear that much silence."""
        self._silence = silence


def rest(seconds: float, watch: Watch) -> None:
    """Let time pass, looking up from it. Raises what the watch raises."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        watch.look()
        time.sleep(min(left, SLICE_SECONDS))


class WatchedStream(httpcore.NetworkStream):
    """A connection whose calls look at a watch; what that raises ends the request."""

    def __init__(self, inner: httpcore.NetworkStream, watch: Watch) -> None:
        self._inner, self._watch = inner, watch

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Bytes as they arrive. Raises `httpcore.ReadTimeout`, or what the watch raises."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._watch.look()
            try:
                piece = self._inner.read(max_bytes, timeout=SLICE_SECONDS)
            except httpcore.ReadTimeout:
                if deadline is not None and time.monotonic() > deadline:
                    raise
            else:
                if piece:
                    self._watch.heard()
                return piece

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of `buffer`. Raises `httpcore.WriteTimeout`, or what the watch raises."""
        if len(buffer) <= _UNBLOCKED_BYTES:
            self._inner.write(buffer, timeout)
            return
        _watched(lambda: self._inner.write(buffer, timeout), self._watch, self._break_off)

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
        inner = _watched(
            lambda: self._inner.start_tls(ssl_context, server_hostname, timeout),
            self._watch,
            self._break_off,
        )
        return WatchedStream(inner, self._watch)

    def get_extra_info(self, info: str) -> Any:
        """What httpcore wants to know of the socket."""
        return self._inner.get_extra_info(info)

    def _break_off(self) -> None:
        """Wake whoever is blocked on the socket; its number is not free before that."""
        end = self._inner.get_extra_info("socket")
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # The peer was faster.


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
        """Connect to a host; looking up its name is watched as well."""
        connected = _watched(
            lambda: self._inner.connect_tcp(host, port, timeout, local_address, socket_options),
            self._watch,
        )
        return WatchedStream(connected, self._watch)

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to a Unix socket."""
        inner = self._inner.connect_unix_socket(path, timeout, socket_options)
        return WatchedStream(inner, self._watch)


def _watched(
    call: Callable[[], _Result], watch: Watch, break_off: Callable[[], None] | None = None
) -> _Result:
    """What a blocking call returns or raises, made in a thread that is left alone on giving up.

    `break_off` is what makes the call end early.
    """
    results: list[_Result] = []
    problems: list[Exception] = []

    def work() -> None:
        try:
            results.append(call())
        except (httpcore.NetworkError, httpcore.TimeoutException, OSError, ValueError) as problem:
            problems.append(problem)

    thread = threading.Thread(target=work, name="engine-connection", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            watch.look()
            thread.join(SLICE_SECONDS)
    except BaseException:
        if break_off is not None:
            break_off()
            thread.join(_JOIN_SECONDS)
        raise
    if results:
        return results[0]
    raise problems[0] if problems else httpcore.ConnectError("the attempt came to nothing")
