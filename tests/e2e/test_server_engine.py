"""A run whose model another server has: our own engine behind a port, and servers of other kinds.

The model is scripted; it passes the smoke test because a trigger in the request says so.
"""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.ground import (
    N_CTX,
    VERILOOP,
    Done,
    Ground,
    make_ground,
    no_leftovers,
    replace,
    shell_contract,
)
from tests.engine.dialects import OTHER, VLLM, Dialect
from tests.engine.fake_server import Asked, said, serving, stream
from tests.engine.tls import server_context

KEY = "sesame-open-sesame"
FILES = {"light.txt": "off\n"}
CONTRACT = shell_contract("grep -qx on light.txt")
EDIT = replace("light.txt", "off", "on")
SMOKE = {"Reply with exactly": "8001_OK"}


@dataclass(frozen=True, slots=True)
class Remote(Ground):
    """A ground whose commands ask another server."""

    server: str = ""
    key: str = ""
    more: tuple[tuple[str, str], ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        key = {"VERILOOP_SERVER_KEY": self.key} if self.key else {}
        return {**Ground(self.tmp).environment, **key, **dict(self.more)}

    def ask(self, *more: str) -> Done:
        """One run of one attempt."""
        return self.veriloop(
            *("run", "Turn it on.", "--server", self.server, "--auto", "--json", "--seed", "1"),
            *("--edit-format", "search-replace", "--attempts", "1", *more),
        )


def remote(tmp: Path, server: str, key: str = "") -> Remote:
    make_ground(tmp, FILES, CONTRACT)
    return Remote(tmp, server, key)


@contextmanager
def served(ground: Ground, scripts: Mapping[str, str], answer: str) -> Iterator[str]:
    """`veriloop serve` with a scripted model on a port of this machine; its URL."""
    model = ground.model(answer, scripts)
    command = [str(VERILOOP), "serve", "--model", str(model), "--port", "0", "--threads", "1"]
    with subprocess.Popen(
        [*command, "--n-ctx", str(N_CTX)],
        env={**ground.environment, "VERILOOP_API_KEY": KEY},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            yield next(line.split()[-1] for line in lines if " on http" in line)
        finally:
            process.terminate()


@dataclass(frozen=True, slots=True)
class Ran:
    """A run against our own engine, and what it left."""

    ground: Remote
    done: Done
    url: str


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    ground = remote(tmp_path_factory.mktemp("remote"), "", KEY)
    with served(ground, SMOKE, EDIT) as url:
        asking = Remote(ground.tmp, url, KEY)
        yield Ran(asking, asking.ask(), url)


def test_a_model_on_a_server_makes_a_commit_like_any_other(ran: Ran) -> None:
    assert ran.done.code == 0, ran.done
    assert ran.done.verdicts == [("strict-progress", "committed")]
    assert ran.ground.read("light.txt") == "on\n"
    ran.ground.fsck()


def test_the_run_begins_with_what_was_found_out_about_the_server(ran: Ran) -> None:
    first, second, *_ = ran.done.of("notice")
    assert ran.url in first["text"]
    assert f"context {N_CTX}" in first["text"]
    assert "Smoke test passed: the model answered 8001_OK" in second["text"]


def test_the_notices_are_recorded(ran: Ran) -> None:
    (database,) = ran.ground.tmp.glob("data/**/*.db")
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT payload FROM ledger WHERE type = 'notice'").fetchall()
    recorded = [json.loads(payload)["text"] for (payload,) in rows]
    assert recorded == [one["text"] for one in ran.done.of("notice")]


def test_the_bundle_names_the_server_and_its_model(ran: Ran) -> None:
    bundle = ran.ground.veriloop("show", ran.done.ended["bundle"], "--json").json["bundle"]
    model = bundle["binding"]["model"]
    assert model["path"] == ran.url
    assert model["architecture"] == "qwen35"
    assert len(model["file_digest"]) == 64


def test_the_key_is_in_no_output_and_no_record(ran: Ran) -> None:
    assert KEY not in ran.done.out + ran.done.err
    kept = [path for path in ran.ground.tmp.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if KEY.encode() in path.read_bytes()]


def test_the_commands_of_the_contract_do_not_see_the_key(tmp_path: Path) -> None:
    contract = shell_contract('test -z "$VERILOOP_SERVER_KEY"')
    make_ground(tmp_path, FILES, contract)
    done = Remote(tmp_path, "", KEY).veriloop("verify", "--json")
    assert done.code == 0, done


def test_a_doctor_looks_at_the_server(ran: Ran) -> None:
    asking = Remote(ran.ground.tmp, ran.url, KEY, (("VERILOOP_SERVER", ran.url),))
    found = {one["name"]: one for one in asking.veriloop("doctor", "--json").json}
    assert found["server"]["ok"]
    assert ran.url in found["server"]["found"]
    assert found["smoke test"]["ok"]
    assert not {"model", "draft head"} & set(found)


def test_an_encrypted_server_is_used_if_its_certificate_is_trusted(tmp_path: Path) -> None:
    with serving(Dialect((VLLM,)), tls=server_context(tmp_path)) as server:
        trusted = (("SSL_CERT_FILE", str(tmp_path / "cert.pem")), ("VERILOOP_SERVER", server.url))
        make_ground(tmp_path, FILES, CONTRACT)
        done = Remote(tmp_path, server.url, "", trusted).veriloop("doctor", "--json")
    found = {one["name"]: one for one in done.json}
    assert (found["server"]["ok"], found["smoke test"]["ok"]) == (True, True), found


def test_a_wrong_key_ends_the_run_before_it_begins(ran: Ran) -> None:
    done = Remote(ran.ground.tmp, ran.url, "wrong-sesame").ask()
    assert done.code == 4
    assert "VERILOOP_SERVER_KEY" in done.err
    assert "wrong-sesame" not in done.err
    assert done.out == ""


def test_text_goes_to_another_machine_only_after_consent(tmp_path: Path) -> None:
    # 0.0.0.0 reaches this machine, but is no address of the loopback.
    with serving(Dialect((VLLM,), answer=said("8001_OK")), "0.0.0.0") as server:
        ground = remote(tmp_path, server.url)
        refused = ground.ask()
        assert (refused.code, server.asked) == (2, [])
        assert f"veriloop trust --server {server.url}" in refused.err

        unasked = ground.veriloop("trust", "--server", server.url)
        assert (unasked.code, server.asked) == (2, [])
        allowed = ground.veriloop("trust", "--server", server.url, "--yes")
        assert allowed.code == 0, allowed.err
        assert "not encrypted" in allowed.out

        assert ground.ask().code == 1  # It babbles.
        assert server.chats


def test_a_workspace_cannot_choose_a_server(tmp_path: Path) -> None:
    with serving(Dialect((VLLM,))) as server:
        ground = remote(tmp_path, server.url)
        ground.write({"veriloop-settings.toml": f'server = "{server.url}"\n'})
        done = ground.veriloop("run", "Turn it on.", "--auto")
    assert (done.code, server.asked) == (2, [])
    assert "a workspace may not set this" in done.err


def test_a_failed_smoke_test_is_told_and_the_rule_still_holds(tmp_path: Path) -> None:
    with serving(Dialect((VLLM,), answer=said("I am a teapot."))) as server:
        ground = remote(tmp_path, server.url)
        done = ground.ask()
    assert done.code == 1
    assert any("Smoke test failed" in one["text"] for one in done.of("notice"))
    assert [label for label, _ in done.verdicts] == ["invalid"]
    assert ground.read("light.txt") == "off\n"


def test_several_models_want_one_named(tmp_path: Path) -> None:
    with serving(Dialect((VLLM, OTHER))) as server:
        ground = remote(tmp_path, server.url)
        done = ground.ask()
        assert done.code == 2
        assert "--server-model" in done.err
        named = ground.ask("--server-model", "thing")
    assert named.of("run-started")[0]["model"]["name"] == "thing"


def test_a_server_that_dies_in_the_middle_ends_the_run_with_exit_4(tmp_path: Path) -> None:
    healthy = Dialect((VLLM,))

    def script(asked: Asked, connection: socket.socket) -> None:
        if "Turn it on." in asked.content.decode():
            connection.sendall(stream(said("`light.txt`\n<<<<<<< SEARCH\n"), done=False))
        else:
            healthy(asked, connection)

    with serving(script) as server:
        ground = remote(tmp_path, server.url)
        done = ground.ask()
        asked = [one for one in server.chats if b"Turn it on." in one.content]
    assert done.code == 4
    assert done.ended["outcome"] == "engine-failed"
    assert server.url in done.ended["detail"]
    assert len(asked) == 1
    assert ground.read("light.txt") == "off\n"
    ground.fsck()
    no_leftovers(tmp_path)


def test_a_server_that_is_not_there_is_told_with_its_address(tmp_path: Path) -> None:
    ground = remote(tmp_path, "http://127.0.0.1:9")
    done = ground.ask()
    assert done.code == 4
    assert "http://127.0.0.1:9" in done.err


def test_the_demo_runs_on_a_server_too(tmp_path: Path) -> None:
    with serving(Dialect((VLLM,))) as server:
        ground = remote(tmp_path, server.url)
        line = ("demo", "--headless", "--json", "--seed", "1", "--server", server.url)
        with ground.started(*line) as running:
            started = running.until("run-started")
    assert started["model"]["path"] == server.url
