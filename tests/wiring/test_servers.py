"""Which servers may be sent the text of workspaces: this machine, and those the user allowed."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from veriloop_tui.config import Settings, load_settings
from veriloop_tui.engine.client.address import parse_address
from veriloop_tui.errors import ServerNotAllowed, UsageError
from veriloop_tui.wiring.servers import (
    ALLOWED_FILE,
    Deadline,
    allow,
    endpoint,
    is_allowed,
    question,
)

FAR = "http://gpu.example:8001"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def settings(data: Path, url: str, **environ: str) -> Settings:
    return load_settings({"server": url, "data_dir": data}, environ, None, data / "none.toml")


def test_this_machine_may_be_used_without_asking(data: Path) -> None:
    for url in ("http://127.0.0.1:8001", "http://localhost:1/v1", "http://[::1]:2"):
        assert question(data, url).allowed
        endpoint(settings(data, url))
    assert not data.exists()


def test_another_machine_must_be_allowed_once_for_each_origin(data: Path) -> None:
    with pytest.raises(ServerNotAllowed, match=f"veriloop trust --server {FAR}"):
        endpoint(settings(data, FAR))

    allow(data, FAR + "/some/path/v1")

    assert endpoint(settings(data, FAR)).base_url == FAR
    assert endpoint(settings(data, FAR + "/v1")).base_url == FAR
    for other in (
        "https://gpu.example:8001",
        "http://gpu.example:8002",
        "http://gpu2.example:8001",
    ):
        assert not question(data, other).allowed


def test_what_was_allowed_before_stays_allowed(data: Path) -> None:
    allow(data, FAR)
    allow(data, "https://other.example")
    allow(data, FAR)
    assert question(data, FAR).allowed
    assert question(data, "https://other.example").allowed
    assert json.loads((data / ALLOWED_FILE).read_text())["origins"] == [
        "https://other.example:443",
        FAR,
    ]


def test_the_question_says_what_goes_where_and_warns_of_plain_http(data: Path) -> None:
    plain = " ".join(question(data, FAR).lines)
    assert FAR in plain
    assert "not encrypted" in plain
    assert "not encrypted" not in " ".join(question(data, "https://gpu.example").lines)


def test_the_file_is_the_users_alone(data: Path) -> None:
    allow(data, FAR)
    assert stat.S_IMODE((data / ALLOWED_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"origins": 3}', b'{"origins": [3]}', b"[" * 100_000]
)
def test_a_damaged_file_allows_nothing_and_is_written_anew(data: Path, content: bytes) -> None:
    data.mkdir()
    (data / ALLOWED_FILE).write_bytes(content)
    assert not question(data, FAR).allowed
    allow(data, FAR)
    assert question(data, FAR).allowed


def test_a_file_that_others_may_write_allows_nothing(data: Path) -> None:
    allow(data, FAR)
    (data / ALLOWED_FILE).chmod(0o666)
    assert not is_allowed(data, parse_address(FAR))


def test_a_link_in_the_place_of_the_file_allows_nothing(data: Path, tmp_path: Path) -> None:
    allow(data, FAR)
    (data / ALLOWED_FILE).rename(tmp_path / "elsewhere")
    (data / ALLOWED_FILE).symlink_to(tmp_path / "elsewhere")
    assert not is_allowed(data, parse_address(FAR))


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        allow(tmp_path / "file" / "data", FAR)


def test_key_and_model_reach_the_server_and_no_text_for_people(data: Path) -> None:
    made = endpoint(
        settings(
            data, "http://127.0.0.1:1", VERILOOP_SERVER_KEY="sesame", VERILOOP_SERVER_MODEL="m"
        )
    )
    assert (made.api_key, made.model) == ("sesame", "m")
    assert "sesame" not in repr(made)


def test_a_deadline_passes_by_itself_or_on_being_asked() -> None:
    assert Deadline(None, 0.0).is_set()
    assert not Deadline(None, 1_000.0).is_set()
    assert Deadline(Deadline(None, 0.0), 1_000.0).is_set()
