"""Promotion of a candidate: what it changes, what it leaves, and when it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.promotion.promotion_ground import (
    BUNDLE,
    CHANGES,
    OLD_FILES,
    RESULT,
    Ground,
    content_of,
    make_ground,
)
from veriloop_tui.core.snapshot import Change, Delete, Write
from veriloop_tui.errors import PromotionFailed, StaleBase

SECOND = 1_000_000_000


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    made = make_ground(tmp_path)
    made.fill()
    return made


def promote(
    ground: Ground, *changes: Change, step: Callable[[str], None] = lambda name: None
) -> None:
    paths = tuple({*OLD_FILES, *(change.path for change in changes)} - {"fresh/deep/c.py"})
    promoter = ground.promoter(step=step, paths=paths)
    promoter.promote(ground.candidate(*changes), RESULT, BUNDLE, ground.commit)


def times_of(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): path.lstat().st_mtime_ns for path in root.rglob("*")}


def test_edits_new_files_new_folders_and_deletions_arrive_together(ground: Ground) -> None:
    promote(ground, *CHANGES)
    assert content_of(ground.root) == {
        "a.py": (0o644, b"new a\r\n"),
        "fresh": (0o755, b"<folder>"),
        "fresh/deep": (0o755, b"<folder>"),
        "fresh/deep/c.py": (0o644, b"new c\n"),
        "pkg": (0o755, b"<folder>"),
        "pkg/b.py": (0o755, b"new b, longer"),
        "pkg/d.py": (0o644, b"new d\n"),
    }
    assert ground.committed(BUNDLE)
    assert ground.leftovers() == []


def test_a_folder_may_take_the_place_of_a_deleted_file(ground: Ground) -> None:
    promote(ground, Delete("a.py"), Write("a.py/inner.py", b"new"))
    assert (ground.root / "a.py/inner.py").read_bytes() == b"new"


def test_what_is_not_touched_keeps_bytes_mode_and_mtime(ground: Ground) -> None:
    (ground.root / "quiet").mkdir()
    (ground.root / "quiet/still.txt").write_bytes(b"still")
    os.utime(ground.root, (2_000_000, 2_000_000))
    before, root_before = times_of(ground.root), ground.root.stat().st_mtime_ns
    promote(ground, Write("pkg/b.py", b"new"))
    after = times_of(ground.root)
    moved = {path for path in before if before[path] != after[path]}
    assert moved == {"pkg", "pkg/b.py"}
    assert ground.root.stat().st_mtime_ns == root_before


def test_a_write_that_changes_nothing_leaves_the_mtime(ground: Ground) -> None:
    before = times_of(ground.root)
    promote(ground, Write("a.py", OLD_FILES["a.py"]))
    assert times_of(ground.root) == before


def test_mode_owner_and_extended_attributes_are_kept(ground: Ground) -> None:
    path = ground.root / "a.py"
    path.chmod(0o640)
    os.setxattr(path, "user.note", b"kept")
    if os.geteuid() == 0:
        os.chown(path, 1234, 4321)
    owner = (path.stat().st_uid, path.stat().st_gid)
    promote(ground, Write("a.py", b"new"))
    assert path.stat().st_mode & 0o7777 == 0o640
    assert (path.stat().st_uid, path.stat().st_gid) == owner
    assert os.getxattr(path, "user.note") == b"kept"


@pytest.mark.parametrize("age", [-3600, 0, 30])
def test_the_mtime_moves_to_another_second_and_not_into_the_future(
    ground: Ground, age: int
) -> None:
    path = ground.root / "a.py"
    path.write_bytes(b"old")
    now = path.stat().st_mtime_ns
    os.utime(path, ns=(now, now - age * SECOND))
    old = path.stat().st_mtime_ns
    promote(ground, Write("a.py", b"new"))
    (ground.root / "probe").write_bytes(b"")
    new, clock = path.stat().st_mtime_ns, (ground.root / "probe").stat().st_mtime_ns
    assert new // SECOND != old // SECOND
    assert new <= clock + SECOND
    assert age < 0 or new >= old + SECOND


def test_python_never_runs_the_bytecode_of_a_replaced_version(ground: Ground) -> None:
    source = ground.root / "m.py"
    source.write_bytes(b"print(0)\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    seen = []
    for number in range(1, 4):
        run = [sys.executable, "-c", "import m"]
        subprocess.run(run, cwd=ground.root, env=env, check=True, capture_output=True)
        ground.marker.unlink(missing_ok=True)
        promote(ground, Write("m.py", b"print(%d)\n" % number))
        shown = subprocess.run(run, cwd=ground.root, env=env, check=True, capture_output=True)
        seen.append(shown.stdout.strip())
    assert (ground.root / "__pycache__").exists()
    assert seen == [b"1", b"2", b"3"]


def save(path: Path) -> None:
    """Save as an editor does. (A write in place would wait for the lease that we hold.)"""
    fresh = path.with_name("fresh~")
    fresh.write_bytes(b"mine")
    fresh.replace(path)


@pytest.mark.parametrize(
    ("change", "disturb"),
    [
        (Write("a.py", b"new"), save),
        (Write("a.py", b"new"), lambda path: path.chmod(0o600)),
        (Write("a.py", b"new"), lambda path: path.unlink()),
        (Write("a.py", b"new"), lambda path: (path.unlink(), path.symlink_to("pkg/b.py"))),
        (Delete("a.py"), save),
        (Write("n.py", b"new"), lambda path: save(path.with_name("n.py"))),
    ],
)
@pytest.mark.parametrize("when", ["stage made", "prepared", "checked", "synced"])
def test_a_base_that_changed_at_any_time_is_stale_and_stays_the_users(
    ground: Ground, change: Change, disturb: Callable[[Path], object], when: str
) -> None:
    seen: list[dict[str, tuple[int, bytes]]] = []

    def step(name: str) -> None:
        if name == when:
            disturb(ground.root / "a.py")
            seen.append(content_of(ground.root))

    with pytest.raises(StaleBase) as stale:
        promote(ground, change, Write("pkg/b.py", b"new b"), step=step)
    wanted = {**seen[0], "pkg/b.py": (0o644, b"old b")}
    assert content_of(ground.root) == wanted
    assert change.path in stale.value.paths
    for path in stale.value.kept:
        assert Path(path).read_bytes() == OLD_FILES["a.py"]
    assert not ground.committed(BUNDLE)
    assert set(ground.leftovers()) <= {"conflicts"}


class FullAt:
    """Raises ENOSPC at the n-th step, the first being 1, unless the steps run out."""

    def __init__(self, last: int) -> None:
        self.last, self.names = last, list[str]()

    def __call__(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) == self.last and "confirmed" not in self.names:
            raise OSError(28, "No space left on device")


def test_a_full_disk_at_any_step_before_the_commit_takes_everything_back(tmp_path: Path) -> None:
    for number in range(1, 100):
        ground = make_ground(tmp_path / str(number))
        ground.fill()
        before, times = content_of(ground.root), times_of(ground.root)
        files = [path for path in times if (ground.root / path).is_file()]
        full = FullAt(number)
        if number > 15 and not raises_full(ground, full):
            assert "confirmed" in full.names
            return
        if number <= 15:
            assert raises_full(ground, full)
        assert content_of(ground.root) == before, full.names
        after = times_of(ground.root)
        assert [after[path] for path in files] == [times[path] for path in files]
        assert ground.leftovers() == []
    pytest.fail("the steps did not run out")


def raises_full(ground: Ground, full: FullAt) -> bool:
    """Whether a promotion fails for want of space."""
    try:
        promote(ground, *CHANGES, step=full)
    except PromotionFailed as failure:
        return "No space left" in str(failure)
    return False


def test_a_commit_that_fails_is_undone_and_its_error_passes_through(ground: Ground) -> None:
    before = content_of(ground.root)

    def commit() -> None:
        raise RuntimeError("the ledger said no")

    with pytest.raises(RuntimeError, match="said no"):
        ground.promoter().promote(ground.candidate(*CHANGES), RESULT, BUNDLE, commit)
    assert content_of(ground.root) == before
    assert ground.leftovers() == []


def test_a_commit_that_fails_after_recording_is_not_undone(ground: Ground) -> None:
    def commit() -> None:
        ground.commit()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ground.promoter().promote(ground.candidate(*CHANGES), RESULT, BUNDLE, commit)
    assert (ground.root / "a.py").read_bytes() == b"new a\r\n"
    assert ground.leftovers() == []


def refuse(ground: Ground, why: str, *changes: Change) -> None:
    before = content_of(ground.root)
    with pytest.raises(PromotionFailed, match=why):
        promote(ground, *changes)
    assert content_of(ground.root) == before
    assert ground.leftovers() == []


def test_a_hard_linked_file_is_refused(ground: Ground) -> None:
    os.link(ground.root / "a.py", ground.root / "other.py")
    refuse(ground, "hard link", Write("pkg/b.py", b"new"), Write("a.py", b"new"))


def test_a_symlink_is_not_followed_nor_replaced(ground: Ground) -> None:
    (ground.root / "link.py").symlink_to("a.py")
    refuse(ground, "symlink", Write("link.py", b"new"))


def test_a_path_through_a_symlinked_folder_is_refused(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (ground.root / "door").symlink_to(tmp_path / "outside")
    refuse(ground, "Not a directory", Write("door/new.py", b"new"))
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize("path", ["../x.py", "/etc/x.py", "a/../../x.py", "", "a//b", "./a.py"])
def test_a_path_that_could_leave_the_workspace_is_refused(ground: Ground, path: str) -> None:
    before = content_of(ground.root)
    with pytest.raises(PromotionFailed, match="not a path inside"):
        ground.promoter().promote(
            ground.candidate(Write(path, b"new")), RESULT, BUNDLE, ground.commit
        )
    assert content_of(ground.root) == before


def test_read_only_files_and_folders_are_refused(ground: Ground) -> None:
    (ground.root / "a.py").chmod(0o444)
    refuse(ground, "read-only", Write("a.py", b"new"))
    (ground.root / "pkg").chmod(0o555)
    refuse(ground, "read-only", Write("pkg/b.py", b"new"))
    refuse(ground, "read-only", Delete("pkg/b.py"))
    refuse(ground, "read-only", Write("pkg/n.py", b"new"))


def test_a_workspace_that_is_gone_is_refused(ground: Ground) -> None:
    candidate = ground.candidate(Write("a.py", b"new"))
    ground.root.rename(ground.root.with_name("elsewhere"))
    with pytest.raises(PromotionFailed, match="No such file"):
        ground.promoter().promote(candidate, RESULT, BUNDLE, ground.commit)


def test_a_file_another_program_keeps_open_for_writing_is_refused(ground: Ground) -> None:
    with (ground.root / "a.py").open("r+b"):
        refuse(ground, "open for writing", Write("a.py", b"new"))


FULL_DISK = """
import os, sys
from pathlib import Path
from tests.store.promotion.promotion_ground import BUNDLE, RESULT, content_of, make_ground
from veriloop_tui.core.snapshot import Write
from veriloop_tui.errors import PromotionFailed
ground = make_ground(Path(sys.argv[1]))
ground.fill()
before = content_of(ground.root)
try:
    ground.promoter().promote(
        ground.candidate(Write("a.py", b"small"), Write("pkg/b.py", b"x" * 200_000)),
        RESULT, BUNDLE, ground.commit,
    )
except PromotionFailed as failure:
    print(failure.problem, content_of(ground.root) == before, ground.leftovers())
"""


def in_namespace(folder: Path, mounts: str, program: str) -> str:
    """Run Python in a user and mount namespace of its own, after the mounts."""
    script = f'{mounts} && exec "$@"'
    command = ["unshare", "-Urm", "sh", "-c", script, "sh", sys.executable, "-c", program]
    done = subprocess.run(
        [*command, str(folder)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_really_full_disk_changes_nothing(tmp_path: Path) -> None:
    shown = in_namespace(tmp_path, f"mount -t tmpfs -o size=128k t {tmp_path}", FULL_DISK)
    assert shown == "No space left on device True []"


OTHER_DISK = """
import sys
from pathlib import Path
from tests.store.promotion.promotion_ground import BUNDLE, RESULT, content_of, make_ground
from veriloop_tui.core.snapshot import Write
ground = make_ground(Path(sys.argv[1]))
ground.fill()
seen = []
promoter = ground.promoter(step=lambda name: seen.extend(ground.root.glob(".veriloop-stage-*")))
change = Write("pkg/b.py", b"new")
promoter.promote(ground.candidate(change), RESULT, BUNDLE, ground.commit)
print(bool(seen), oct(0o700), (ground.root / "pkg/b.py").read_bytes(), ground.leftovers())
"""


def test_a_workspace_on_another_disk_is_staged_in_its_own_root(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    shown = in_namespace(tmp_path, f"mount -t tmpfs t {tmp_path}/work", OTHER_DISK)
    assert shown == "True 0o700 b'new' []"


def test_a_file_system_without_exchange_is_announced_once_and_still_served(
    ground: Ground,
) -> None:
    notices: list[str] = []
    promoter = ground.promoter(notices=notices, kernel=lambda directory: None)
    promoter.promote(ground.candidate(*CHANGES), RESULT, BUNDLE, ground.commit)
    assert (ground.root / "a.py").read_bytes() == b"new a\r\n"
    assert len(notices) == 1
    assert "cannot exchange" in notices[0]
    assert ground.leftovers() == []
