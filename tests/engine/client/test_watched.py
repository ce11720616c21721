"""Connections that are given up: by silence, by time, by whoever asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import httpcore
import pytest

from veriloop_tui.engine.client.watched import (
    RequestCancelled,
    SilentError,
    Watch,
    WatchedBackend,
    rest,
)


def nothing() -> None:
    """Let it go on."""


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def connect(peer: socket.socket, watch: Watch) -> httpcore.NetworkStream:
    host, port = peer.getsockname()
    return WatchedBackend(watch).connect_tcp(host, port, 5.0, None, [])


def test_silence_is_borne_for_so_long_and_no_longer(peer: socket.socket) -> None:
    stream = connect(peer, Watch(nothing, silence=0.2))
    with pytest.raises(SilentError, match="silent"):
        stream.read(10)
    stream.close()


def test_a_peer_that_drips_is_given_up_when_its_time_is_up(peer: socket.socket) -> None:
    watch = Watch(nothing, total=0.3)
    stream = connect(peer, watch)
    connection, _ = peer.accept()
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.02):
            connection.sendall(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    with pytest.raises(SilentError, match="not answered"):
        all(iter(lambda: stream.read(1), b""))
    stop.set()
    dripping.join()
    connection.close()
    stream.close()


def test_what_was_heard_is_known_and_ends_a_silence(peer: socket.socket) -> None:
    watch = Watch(nothing, silence=30.0)
    stream = connect(peer, watch)
    connection, _ = peer.accept()
    assert not watch.heard_any

    connection.sendall(b"x")
    assert stream.read(10) == b"x"
    assert watch.heard_any
    connection.close()
    stream.close()


def test_the_end_of_a_stream_is_nothing_heard(peer: socket.socket) -> None:
    watch = Watch(nothing)
    stream = connect(peer, watch)
    connection, _ = peer.accept()
    connection.close()

    assert stream.read(10) == b""
    assert not watch.heard_any
    stream.close()


def test_a_blocked_send_ends_when_the_watch_says_so(peer: socket.socket) -> None:
    looks = iter(range(3))

    def ask() -> None:
        if next(looks, None) is None:
            raise RequestCancelled

    stream = connect(peer, Watch(nothing))
    blocked = WatchedBackend(Watch(ask))
    host, port = peer.getsockname()
    with pytest.raises(RequestCancelled):
        blocked.connect_tcp(host, port, 5.0, None, []).write(b"x" * 50_000_000, 60.0)
    assert not [one for one in threading.enumerate() if one.name == "engine-connection"]
    stream.close()


def test_an_error_of_a_blocked_call_is_the_callers(peer: socket.socket) -> None:
    host, port = peer.getsockname()
    peer.close()
    with pytest.raises(httpcore.ConnectError):
        WatchedBackend(Watch(nothing)).connect_tcp(host, port, 5.0, None, [])
    with pytest.raises((httpcore.ConnectError, UnicodeError)):
        WatchedBackend(Watch(nothing)).connect_tcp("a" * 70 + ".example", 1, 5.0, None, [])


def test_a_rest_is_broken_off() -> None:
    def ask() -> None:
        raise RequestCancelled

    with pytest.raises(RequestCancelled):
        rest(1_000.0, Watch(ask))
