"""Each rung of the staging ladder, on real files in real namespaces."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.staging.stage_ground import describe, make_workspace, run_in
from veriloop_tui.core.ports import Stager
from veriloop_tui.core.snapshot import Delete, Write
from veriloop_tui.errors import InvalidEdit, StagingUnavailable
from veriloop_tui.store.staging.copying import CopyStager
from veriloop_tui.store.staging.ladder import WantedRung, choose_stager
from veriloop_tui.store.staging.overlay import OverlayStager

LISTING = "find . ! -type d -printf '%p %y %m %s %l\\n' | sort; cat pkg/code.py"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_workspace(tmp_path / "work, space: one")


@pytest.fixture(params=["overlay", "copy", "copy elsewhere"])
def stager(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> Stager:
    scratch = tmp_path / "scratch"
    if request.param == "copy elsewhere":
        return CopyStager(root, scratch, None)
    wanted: WantedRung = request.param
    return choose_stager(root, scratch, wanted)[0]


def test_commands_see_the_candidate_and_everything_else_of_the_workspace(stager: Stager) -> None:
    changes = (
        Write("pkg/code.py", b"VALUE = 2\n"),
        Write("new/folder/file.txt", b"new", 0o600),
        Write("tool.sh", b"#!/bin/sh\necho changed\n"),
        Delete("pkg/inner/deep.txt"),
    )
    with stager.stage(changes) as stage:
        assert run_in(stage, "cat pkg/code.py link") == "VALUE = 2\nVALUE = 2\n"
        assert run_in(stage, "cat new/folder/file.txt; ./tool.sh") == "newchanged\n"
        assert run_in(stage, "ls pkg/inner; stat -c %a tool.sh new/folder/file.txt new") == (
            "750\n600\n755\n"
        )
        assert run_in(stage, "cat .venv/bin/ignored; readlink dangling; ls empty") == (
            "ignorednowhere\n"
        )


def test_nothing_that_runs_in_a_stage_changes_the_workspace(root: Path, stager: Stager) -> None:
    before = describe(root)
    with stager.stage((Write("pkg/code.py", b"x"), Delete("tool.sh"))) as stage:
        run_in(
            stage, "echo more >>locked.txt || true; echo x >>pkg/inner/deep.txt; rm -rf -- * .v*"
        )
        assert run_in(stage, "ls -A") == ""
    assert describe(root) == before


def test_each_stage_starts_afresh(stager: Stager) -> None:
    with stager.stage((Write("first", b""),)) as stage:
        run_in(stage, "touch left; rm tool.sh")
        assert run_in(stage, "ls left") == "left\n"
    with stager.stage(()) as stage:
        assert run_in(stage, "ls") == "dangling\nempty\nlink\nlocked.txt\npkg\ntool.sh\n"


def test_commands_of_one_stage_see_what_the_one_before_wrote(stager: Stager) -> None:
    with stager.stage(()) as stage:
        run_in(stage, "echo built >product; rm link")
        assert run_in(stage, "cat product; ls link 2>&1 || true").startswith("built\n")


def test_a_stage_is_removed_whatever_modes_its_commands_left(
    stager: Stager, tmp_path: Path
) -> None:
    with stager.stage(()) as stage:
        run_in(stage, "mkdir -p a/b/c && touch a/b/c/d && chmod 000 a/b/c && chmod 555 a a/b pkg")
        assert [p for p in (tmp_path / "scratch").iterdir() if p.is_dir()]
    assert [p for p in (tmp_path / "scratch").iterdir() if p.is_dir()] == []


def test_overlay_and_copy_show_the_same_workspace(root: Path, tmp_path: Path) -> None:
    changes = (Write("pkg/code.py", b"VALUE = 3\n"), Delete("link"), Write("n/m.py", b"1", 0o755))
    seen = set()
    for rung in ("overlay", "copy"):
        with choose_stager(root, tmp_path / "scratch", rung)[0].stage(changes) as stage:
            seen.add(run_in(stage, f"pwd; {LISTING}"))
    assert len(seen) == 1
    assert str(root) in seen.pop()


def test_a_written_file_is_at_least_a_second_newer_than_its_base(
    root: Path, stager: Stager
) -> None:
    (root / "now.py").write_text("a")
    before = (root / "now.py").stat().st_mtime
    with stager.stage((Write("now.py", b"b"),)) as stage:
        assert float(run_in(stage, "stat -c %.9Y now.py")) >= before + 1


def test_compiled_python_of_a_changed_file_is_gone_and_that_of_others_is_kept(
    root: Path, stager: Stager
) -> None:
    cache = root / "pkg" / "__pycache__"
    cache.mkdir()
    for name in ("code.cpython-311.pyc", "code.cpython-311-pytest-9.pyc", "coder.cpython-311.pyc"):
        (cache / name).write_bytes(b"")
    with stager.stage((Write("pkg/code.py", b"VALUE = 2\n"),)) as stage:
        assert run_in(stage, "ls pkg/__pycache__") == "coder.cpython-311.pyc\n"


@pytest.mark.parametrize("path", ["../out", "/etc/out", "a/../../out", "way/out", "away", ""])
def test_a_path_that_leads_out_is_refused(
    root: Path, stager: Stager, tmp_path: Path, path: str
) -> None:
    (tmp_path / "outside").mkdir()
    (root / "way").symlink_to(tmp_path / "outside")
    (root / "away").symlink_to(tmp_path / "outside" / "file")
    with pytest.raises(InvalidEdit), stager.stage((Write(path, b"x"),)):
        pass
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_file_can_become_a_folder_and_a_folder_a_file(stager: Stager) -> None:
    changes = (
        Delete("locked.txt"),
        Write("locked.txt/now/a/folder", b"1"),
        Delete("pkg/inner/deep.txt"),
        Write("pkg/inner", b"2"),
    )
    with stager.stage(changes) as stage:
        assert run_in(stage, "cat locked.txt/now/a/folder pkg/inner") == "12"


def test_the_best_rung_is_chosen_without_a_notice(root: Path, tmp_path: Path) -> None:
    chosen, notices = choose_stager(root, tmp_path / "scratch")
    assert (chosen.rung, notices) == ("overlay", ())


def test_files_of_other_users_are_staged_by_copy_for_root(root: Path, tmp_path: Path) -> None:
    """Root unpacks an archive with its owners kept; in a namespace it could not write to those."""
    if os.geteuid() == 0:
        os.chown(root / "tool.sh", 1234, 1234)
    chosen, notices = choose_stager(root, tmp_path / "scratch")
    with chosen.stage(()) as stage:
        run_in(stage, "echo more >>tool.sh")
    assert (chosen.rung, bool(notices)) == (
        ("copy", True) if os.geteuid() == 0 else ("overlay", False)
    )


def test_a_file_system_mounted_inside_the_workspace_is_staged_by_copy(
    root: Path, tmp_path: Path
) -> None:
    """An overlay would show the folder below the mount, not what is mounted there."""
    program = (
        "import subprocess, sys; from pathlib import Path; "
        "from veriloop_tui.store.staging.ladder import choose_stager\n"
        "s, n = choose_stager(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "with s.stage(()) as g: print(s.rung, (g.copy / 'empty/mounted').exists(), n)"
    )
    mounting = 'mount -t tmpfs tmpfs "$1/empty" && touch "$1/empty/mounted" && shift && exec "$@"'
    done = subprocess.run(
        ("unshare", "-Urm", "sh", "-c", mounting, "sh", str(root), sys.executable, "-c", program,
         str(root), str(tmp_path / "scratch")),
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("copy True"), done.stderr
    assert "mounted inside it" in done.stdout


def test_a_lower_rung_is_announced(root: Path, tmp_path: Path) -> None:
    chosen, notices = choose_stager(root, tmp_path / "scratch", "copy")
    assert chosen.rung == "copy"
    assert "full copy" in notices[0]


def test_an_upper_folder_on_an_overlay_falls_to_memory_and_says_so(
    root: Path, tmp_path: Path
) -> None:
    """Containers keep their disks on overlays, which cannot hold an upper folder themselves."""
    plain = choose_stager(root, tmp_path / "scratch", "overlay")[0]
    with plain.stage(()) as stage:
        program = (
            "import sys; from pathlib import Path; "
            "from veriloop_tui.store.staging.ladder import *; "
            "s, n = choose_stager(Path(sys.argv[1]), Path(sys.argv[2])); "
            "print(s.rung, s.scratch_dir, n)"
        )
        line = shlex.join(
            (sys.executable, "-c", program, str(tmp_path / "other"), str(root / "data"))
        )
        (tmp_path / "other").mkdir()
        home = Path(__file__).parents[2]
        said = run_in(stage, f"PYTHONPATH={shlex.quote(str(home))} {line}")
    assert said.startswith("overlay /dev/shm/veriloop-")
    assert "Staging writes to memory" in said


def test_what_a_killed_run_left_behind_is_removed_at_the_next_start(
    root: Path, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    left = scratch / "stage-left"
    (left / "upper").mkdir(parents=True)
    left.with_suffix(".lock").touch()
    alive = choose_stager(root, scratch, "overlay")[0]
    with alive.stage(()) as stage:
        choose_stager(root, scratch, "overlay")
        assert not left.exists()
        assert stage.scratch.is_dir()


def test_a_rung_that_cannot_mount_never_runs_the_command_on_the_workspace(
    root: Path, tmp_path: Path
) -> None:
    chosen = choose_stager(root, tmp_path / "scratch", "overlay")[0]
    assert isinstance(chosen, OverlayStager)
    with chosen.stage(()) as stage:
        (stage.area / "work").rename(stage.area / "moved")
        with pytest.raises(AssertionError, match="mount"):
            run_in(stage, "touch written")
    assert not (root / "written").exists()


def test_a_scratch_folder_that_cannot_be_made_is_an_error_that_names_it(
    root: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StagingUnavailable, match="file"):
        choose_stager(root, tmp_path / "file" / "scratch", "copy")
