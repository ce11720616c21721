"""Which folders of a hidden home are shown again."""

from __future__ import annotations

from pathlib import Path

import pytest

from veriloop_tui.contract.toolchain import toolchains


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    for folder in (".ssh", ".local/bin", ".local/lib/python3.11", ".local/share/keyrings", "data"):
        (home / folder).mkdir(parents=True)
    return home


def shown(home: Path, path: str, *prefixes: Path) -> set[str]:
    found = toolchains(path, prefixes, home, (home,), (home / "data", home / ".ssh"))
    return {str(place.relative_to(home)) for place in found}


def test_local_tools_are_shown_without_the_keyrings_beside_them(home: Path) -> None:
    assert shown(home, f"{home}/.local/bin") == {".local/bin", ".local/lib"}


def test_a_virtual_environment_is_shown_whole_with_the_installation_it_comes_from(
    home: Path,
) -> None:
    base, venv = home / "pythons" / "3.12", home / "envs" / "mine"
    for prefix in (base, venv):
        (prefix / "bin").mkdir(parents=True)
    (base / "lib" / "python3.12").mkdir(parents=True)
    (base / "bin" / "python3.12").touch()
    (venv / "bin" / "python").symlink_to(base / "bin" / "python3.12")
    (venv / "pyvenv.cfg").write_text(f"home = {base}/bin\n")
    assert shown(home, "", venv) == {"pythons/3.12", "envs/mine"}


def test_every_hop_of_a_link_is_shown(home: Path) -> None:
    real = home / "store" / "cpython-3.12.4" / "bin"
    real.mkdir(parents=True)
    (real / "python").touch()
    (home / "store" / "cpython-3.12").symlink_to("cpython-3.12.4")
    (home / ".local" / "bin" / "python").symlink_to(home / "store/cpython-3.12/bin/python")
    assert {"store/cpython-3.12/bin", "store/cpython-3.12.4/bin"} <= shown(
        home, f"{home}/.local/bin"
    )


def test_a_version_switcher_is_shown_whole(home: Path) -> None:
    for folder in ("shims", "versions"):
        (home / ".pyenv" / folder).mkdir(parents=True)
    assert shown(home, f"{home}/.pyenv/shims") == {".pyenv"}


@pytest.mark.parametrize("entry", ["", "data", "data/bin", ".ssh", "data/../.ssh"])
def test_the_home_and_what_is_private_are_never_shown(home: Path, entry: str) -> None:
    (home / "data" / "bin").mkdir()
    assert shown(home, f"{home}/{entry}") == set()


def test_a_link_into_a_private_folder_does_not_show_it(home: Path) -> None:
    (home / ".ssh" / "id").touch()
    (home / ".local" / "bin" / "trap").symlink_to(home / ".ssh" / "id")
    assert ".ssh" not in shown(home, f"{home}/.local/bin")


def test_what_is_not_hidden_is_not_shown_again(home: Path) -> None:
    assert shown(home, "/usr/bin:/bin:relative") == set()
