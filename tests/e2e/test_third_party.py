"""A source distribution that somebody else wrote, with the pytest suite that came with it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.e2e.ground import Ground, everything

# Pure Python, no dependency but pytest, and a build that needs only what the tests install anyway.
SOURCE = "annotated-types==0.7.0"


@pytest.fixture
def unpacked(tmp_path: Path) -> Ground:
    """The distribution, downloaded and unpacked as a workspace without a contract."""
    download = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--no-binary", ":all:", "--no-build-isolation", "--dest", str(tmp_path), SOURCE),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    archives = list(tmp_path.glob("*.tar.gz"))
    if download.returncode or len(archives) != 1:
        pytest.fail(f"pip could not download {SOURCE}, which this test needs: {download.stderr}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    ground = Ground(tmp_path)
    folder.rename(ground.root)
    (tmp_path / "home").mkdir()
    return ground


def test_a_foreign_project_can_be_detected_and_ranked_and_is_left_as_it_was(
    unpacked: Ground,
) -> None:
    names = {path.name for path in unpacked.root.iterdir()}
    written = unpacked.veriloop("init")
    assert written.code == 0, written
    assert {path.name for path in unpacked.root.iterdir()} - names == {"veriloop.toml"}
    before = everything(unpacked.root)

    done = unpacked.veriloop("verify", "--json")
    assert done.code in (0, 1), done
    (status,) = done.events[-1]["obligations"]
    assert status["checks"] > 50
    assert (done.code == 0) == (status["total"] == 0)
    # Some of its tests have memory addresses in their names, which is no reason to distrust them.
    assert status["quarantined"] == []
    assert everything(unpacked.root) == before
    unpacked.fsck()

    # The suite tests this tree, not an installed copy: breaking it is seen.
    module = unpacked.root / "annotated_types" / "__init__.py"
    module.write_text(module.read_text().replace("class Gt(", "class NotGt("))
    broken = unpacked.veriloop("verify", "--json")
    assert broken.code == 1, broken
    assert broken.events[-1]["total"] > status["total"]
