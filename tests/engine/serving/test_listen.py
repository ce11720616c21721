"""Where the engine listens, and with what key."""

from pathlib import Path

import pytest

from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.serving.listen import ServeSettings, listen
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import UsageError


@pytest.mark.parametrize(
    ("host", "key", "reason"),
    [
        ("0.0.0.0", "fifteen letters", "at least 16"),
        ("192.168.0.1", "k", "at least 16"),
        ("::", "", "needs a key"),
        ("localhost", "k", "not an IP"),
        ("127.0.0.1", "", "needs a key"),
    ],
)
def test_a_port_needs_a_key_and_a_long_one_where_others_can_reach_it(
    host: str, key: str, reason: str
) -> None:
    settings = ServeSettings(LoadSettings(Path("m")), host=host, api_key=key)

    with pytest.raises(UsageError, match=reason):
        listen(settings)


def test_other_machines_may_be_let_in_with_a_long_key() -> None:
    settings = ServeSettings(LoadSettings(Path("m")), host="0.0.0.0", api_key="sixteen letters!")

    with listen(settings) as listener:
        assert listener.getsockname()[0] == "0.0.0.0"


def test_a_socket_in_use_is_not_taken_over(engine: EngineProcess) -> None:
    settings = ServeSettings(LoadSettings(Path("m")), socket_path=engine.socket_path)

    with pytest.raises(UsageError, match="Another engine"):
        listen(settings)


def test_a_socket_left_behind_is_replaced(tmp_path: Path) -> None:
    settings = ServeSettings(LoadSettings(Path("m")), socket_path=tmp_path / "e.sock")
    listen(settings).close()

    listen(settings).close()


def test_a_file_in_the_sockets_place_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")

    with pytest.raises(UsageError):
        listen(ServeSettings(LoadSettings(Path("m")), socket_path=path))

    assert path.read_text() == "mine"
