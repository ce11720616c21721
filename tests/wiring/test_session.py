"""The terminal app's session on a model that another server has."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.e2e.ground import replace, shell_contract
from tests.engine.dialects import VLLM, Dialect
from tests.engine.fake_server import Asked, ended, said, serving, stream, used
from veriloop_tui.config import load_settings
from veriloop_tui.contract.trust import trust
from veriloop_tui.core.event import Event, Notice, RunEnded, RunStarted
from veriloop_tui.errors import Cancelled
from veriloop_tui.wiring.running import EveryCommit
from veriloop_tui.wiring.session import WorkspaceSession
from veriloop_tui.wiring.workspace import Location, opened

NEVER = threading.Event()


@contextmanager
def session_on(tmp: Path, url: str) -> Iterator[WorkspaceSession]:
    root = tmp / "project"
    root.mkdir(parents=True)
    (root / "light.txt").write_text("off\n")
    (root / "veriloop.toml").write_text(shell_contract("grep -qx on light.txt"))
    flags = {"server": url, "data_dir": tmp / "data", "attempts": 1}
    location = Location(root, load_settings(flags, {}, root, tmp / "none"), tmp / "data" / "one")
    trust(location.trust_file, location.contract())
    with opened(location) as workspace, closing(WorkspaceSession(workspace, 1)) as session:
        yield session


def run(session: WorkspaceSession) -> list[Event]:
    return list(session.run("Turn it on.", EveryCommit(), NEVER))


def test_each_run_looks_at_the_server_anew(tmp_path: Path) -> None:
    healthy = Dialect((VLLM,))

    def script(asked: Asked, connection: socket.socket) -> None:
        if b"Turn it on." in asked.content:
            answer = replace("light.txt", "off", "on")
            connection.sendall(stream(said(answer), ended(), used()))
        else:
            healthy(asked, connection)

    with serving(script) as server, session_on(tmp_path, server.url) as session:
        assert session.facts().model == f"the model at {server.url}"
        assert server.asked == []
        first = run(session)
        probed = len([one for one in server.asked if one.path == "/v1/models"])
        second = run(session)
        again = len([one for one in server.asked if one.path == "/v1/models"])

    started, told = first[0], [event.text for event in first if isinstance(event, Notice)]
    assert isinstance(started, RunStarted)
    assert started.model is not None
    assert (started.model.path, started.model.notices) == (server.url, ())
    assert any("Smoke test passed" in text for text in told)
    assert (tmp_path / "project" / "light.txt").read_text() == "on\n"
    assert isinstance(second[-1], RunEnded)
    assert (probed, again) == (1, 2)


def test_a_run_can_be_stopped_while_the_server_is_looked_at(tmp_path: Path) -> None:
    cancel = threading.Event()

    def script(asked: Asked, connection: socket.socket) -> None:
        cancel.set()
        connection.recv(1)

    with (
        serving(script) as server,
        session_on(tmp_path, server.url) as session,
        pytest.raises(Cancelled),
    ):
        list(session.run("Turn it on.", EveryCommit(), cancel))
