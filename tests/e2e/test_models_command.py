"""`veriloop models` as a user runs it, against a server that speaks the hub's protocol."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.ground import VERILOOP
from tests.registry.hub_server import REPO, Hub, serving
from veriloop_tui.errors import DownloadFailed
from veriloop_tui.registry import RepoFile
from veriloop_tui.registry.hub import check_room

REF = f"hf:{REPO}:Q4_0"
MODEL = b"GGUF" + bytes(range(256)) * 12_000
FILES = {
    "tiny-Q4_0.gguf": MODEL,
    "tiny-Q8_0.gguf": MODEL + b"more",
    "big/big-F16-00001-of-00002.gguf": b"GGUF one",
    "big/big-F16-00002-of-00002.gguf": b"GGUF two",
    "mtp-tiny-F16.gguf": b"GGUF head",
}


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving(Hub(dict(FILES))) as running:
        yield running


class User:
    """Someone at a shell, with a cache of their own."""

    def __init__(self, home: Path, hub: Hub, **extra: str) -> None:
        self.home, self.hub = home, hub
        self.environment = {
            **os.environ,
            "HOME": str(home),
            "HF_HOME": str(home / "hf"),
            "HF_ENDPOINT": hub.url,
            "HF_HUB_DISABLE_XET": "1",
            "XDG_CONFIG_HOME": str(home),
            **extra,
        }
        self.environment.pop("HF_TOKEN", None) if "HF_TOKEN" not in extra else None

    def models(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(VERILOOP), "models", *arguments]
        return subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def pulled(self, *arguments: str) -> list[Path]:
        done = self.models("pull", *arguments, "--yes", "--json")
        assert done.returncode == 0, done.stderr
        return [Path(one) for one in json.loads(done.stdout)]


def test_a_model_is_fetched_checked_and_then_found_without_the_network(
    tmp_path: Path, hub: Hub
) -> None:
    user = User(tmp_path, hub)

    (path,) = user.pulled(REF)
    listed = json.loads(user.models("files", REF, "--json").stdout)

    assert path.read_bytes() == MODEL
    assert {one["quant"]: one["here"] for one in listed if not one["draft"]} == {
        "Q4_0": True,
        "Q8_0": False,
        "F16": False,
    }
    assert user.models("verify", REF).returncode == 0
    sent = hub.sent
    assert user.pulled(REF) == [path]
    assert hub.sent == sent


def test_a_cut_connection_goes_on_where_it_was_cut(tmp_path: Path, hub: Hub) -> None:
    hub.cut_after, hub.cuts = len(MODEL) // 3, 2

    (path,) = User(tmp_path, hub).pulled(REF)

    assert path.read_bytes() == MODEL
    assert hub.sent == len(MODEL)


def test_a_program_that_is_killed_goes_on_where_it_was_killed(tmp_path: Path, hub: Hub) -> None:
    hub.cut_after, hub.cuts = len(MODEL) // 2, 1
    user = User(tmp_path, hub)
    blobs = tmp_path / "hf" / "hub" / f"models--{REPO.replace('/', '--')}" / "blobs"
    user.pulled(f"hf:{REPO}:F16")
    # As a killed download leaves it: half of the file.
    sha = next(entry["lfs"]["oid"] for entry in hub.tree() if entry["path"] == "tiny-Q4_0.gguf")  # type: ignore[index]
    (blobs / f"{sha}.veriloop-part").write_bytes(MODEL[: len(MODEL) // 2])
    hub.cuts, hub.sent = 0, 0

    (path,) = user.pulled(REF)

    assert path.read_bytes() == MODEL
    assert hub.sent == len(MODEL) - len(MODEL) // 2


def test_a_server_without_ranges_is_asked_for_everything_again(tmp_path: Path, hub: Hub) -> None:
    hub.ranges, hub.cut_after, hub.cuts = False, 1_000_000, 1

    (path,) = User(tmp_path, hub).pulled(REF)

    assert path.read_bytes() == MODEL


def test_wrong_bytes_are_refused_and_deleted(tmp_path: Path, hub: Hub) -> None:
    hub.lies.add("tiny-Q4_0.gguf")
    user = User(tmp_path, hub)

    done = user.models("pull", REF, "--yes")

    assert done.returncode == 1
    assert "sha256" in done.stderr
    assert not list(tmp_path.rglob("*.veriloop-part"))
    assert "Q4_0" not in user.models("verify", REF).stdout


def test_shards_and_a_draft_head_come_as_a_whole(tmp_path: Path, hub: Hub) -> None:
    user = User(tmp_path, hub)

    paths = user.pulled(f"hf:{REPO}:F16", "--draft")

    assert [path.name for path in paths] == [
        "big-F16-00001-of-00002.gguf",
        "big-F16-00002-of-00002.gguf",
        "mtp-tiny-F16.gguf",
    ]


def test_removing_frees_the_bytes(tmp_path: Path, hub: Hub) -> None:
    user = User(tmp_path, hub)
    (path,) = user.pulled(REF)

    done = user.models("rm", REF, "--yes")

    assert done.returncode == 0
    assert not path.exists()
    assert not [one for one in tmp_path.rglob("*") if one.is_file() and one.stat().st_size > 10_000]
    assert user.models("rm", REF, "--yes").returncode == 2


def test_a_damaged_file_fails_the_check(tmp_path: Path, hub: Hub) -> None:
    user = User(tmp_path, hub)
    (path,) = user.pulled(REF)
    blob = path.resolve()
    blob.write_bytes(blob.read_bytes()[:-1] + b"!")

    done = user.models("verify", REF)

    assert done.returncode == 1
    assert "BAD  tiny-Q4_0.gguf" in done.stdout


def test_a_gated_repository_wants_a_token_and_gets_it(tmp_path: Path, hub: Hub) -> None:
    hub.token = "hf_secret"

    refused = User(tmp_path / "a", hub).models("pull", REF, "--yes")
    (path,) = User(tmp_path / "b", hub, HF_TOKEN="hf_secret").pulled(REF)

    assert refused.returncode == 1
    assert "HF_TOKEN" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert path.read_bytes() == MODEL


def test_offline_mode_says_so(tmp_path: Path, hub: Hub) -> None:
    done = User(tmp_path, hub, HF_HUB_OFFLINE="1").models("pull", REF, "--yes")

    assert done.returncode == 1
    assert "HF_HUB_OFFLINE" in done.stderr


def test_an_unknown_repository_and_an_unknown_quant_are_told_apart(
    tmp_path: Path, hub: Hub
) -> None:
    user = User(tmp_path, hub)

    repository = user.models("files", "hf:no/such-GGUF")
    quant = user.models("pull", f"hf:{REPO}:Q2_K", "--yes")

    assert "no such repository" in repository.stderr
    assert "offers F16, Q4_0, Q8_0" in quant.stderr
    assert (repository.returncode, quant.returncode) == (1, 2)


def test_names_that_leave_the_folder_are_not_even_listed(tmp_path: Path, hub: Hub) -> None:
    hub.extra = ("../../evil-Q4_0.gguf", "/etc/evil-Q4_0.gguf", "a\\..\\evil-Q4_0.gguf")

    done = User(tmp_path, hub).models("files", REF)

    assert done.returncode == 0
    assert "evil" not in done.stdout


def test_without_a_terminal_nothing_is_fetched_unasked(tmp_path: Path, hub: Hub) -> None:
    done = User(tmp_path, hub).models("pull", REF)

    assert done.returncode == 2
    assert hub.sent == 0


def test_a_full_disk_is_noticed_before_anything_is_fetched() -> None:
    file = RepoFile("m-Q4_0.gguf", 10 << 30, "0" * 64)

    with pytest.raises(DownloadFailed, match="HF_HOME"):
        check_room((file,), missing=10 << 30, free=10 << 30)
    check_room((file,), missing=10 << 30, free=11 << 30)
