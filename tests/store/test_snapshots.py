"""Snapshots of a real workspace: taken, read back, compared, and edited without looking."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.core.ports import Snapshots
from veriloop_tui.core.snapshot import Candidate, Change, Delete, SnapshotId, Write
from veriloop_tui.errors import InvalidEdit, SnapshotNotFound, SnapshotRefused
from veriloop_tui.store.audit import audit_content
from veriloop_tui.store.candidate import check_path
from veriloop_tui.store.database import Database, reading
from veriloop_tui.store.scan import ScanLimits
from veriloop_tui.store.snapshots import StoredSnapshots, WorkspaceSnapshots

HOME = Path("/nowhere/home")


def later() -> int:
    """A clock ahead of the files' times, so that none counts as just changed."""
    return time.time_ns() + 10_000_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "workspace"
    (made / "pkg/empty").mkdir(parents=True)
    (made / "pkg/a.py").write_bytes(b"a = 1\r\n")
    (made / "run.sh").write_bytes(b"#!/bin/sh\n")
    (made / "run.sh").chmod(0o755)
    (made / "link").symlink_to("pkg")
    (made / ".gitignore").write_text("*.log\nbuild/\n")
    return made


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def snapshots(root: Path, database: Database) -> WorkspaceSnapshots:
    return WorkspaceSnapshots(root, database, home=HOME, now=later)


def apply(root: Path, changes: tuple[Change, ...]) -> None:
    """Make the changes in the live files, as a promotion would."""
    for change in changes:
        path = root / change.path
        if isinstance(change, Delete):
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = path.stat().st_mode & 0o7777 if path.exists() else 0o644
        path.write_bytes(change.content)
        path.chmod(kept if change.mode is None else change.mode)


def test_it_is_the_port_that_the_controller_uses(snapshots: WorkspaceSnapshots) -> None:
    port: Snapshots = snapshots
    assert port.take()


def test_a_snapshot_gives_back_every_path_and_byte(
    root: Path, snapshots: WorkspaceSnapshots
) -> None:
    taken = snapshots.take()
    entries = snapshots.entries(taken)
    assert set(entries) == {".gitignore", "link", "pkg", "pkg/a.py", "pkg/empty", "run.sh"}
    assert snapshots.read(taken, "pkg/a.py") == b"a = 1\r\n"
    assert snapshots.link_target(taken, "link") == b"pkg"
    assert entries["run.sh"].mode == 0o755
    for path in ("missing", "link", "pkg"):
        with pytest.raises(KeyError):
            snapshots.read(taken, path)


def test_equal_workspaces_have_equal_ids_and_any_difference_another(
    root: Path, snapshots: WorkspaceSnapshots
) -> None:
    seen = [snapshots.take()]
    assert snapshots.take() == seen[0]
    for change in (
        lambda: (root / "run.sh").chmod(0o644),
        lambda: (root / "pkg/empty").rmdir(),
        lambda: (root / "pkg/a.py").write_bytes(b"a = 2\r\n"),
        lambda: (root / "link").unlink(),
        lambda: (root / "new").mkdir(),
        lambda: (root / "new").chmod(0o700),
    ):
        change()
        seen.append(snapshots.take())
    assert len(set(seen)) == len(seen)


def test_an_old_snapshot_can_be_read_by_another_process_later(root: Path, tmp_path: Path) -> None:
    with Database(tmp_path / "data") as database:
        first = WorkspaceSnapshots(root, database, home=HOME, now=later)
        taken = first.take()
        entries = dict(first.entries(taken))
    (root / "pkg/a.py").write_bytes(b"changed")
    with reading(tmp_path / "data") as connection:
        stored = StoredSnapshots.on(connection, tmp_path / "data/segments")
        assert dict(stored.entries(taken)) == entries
        assert stored.read(taken, "pkg/a.py") == b"a = 1\r\n"


def test_a_new_process_reads_only_what_changed(root: Path, tmp_path: Path) -> None:
    read: list[int] = []
    for _ in range(2):
        with Database(tmp_path / "data") as database:
            snapshots = WorkspaceSnapshots(
                root,
                database,
                home=HOME,
                now=later,
                progress=lambda done, total: read.append(total),
            )
            snapshots.take()
        (root / "pkg/a.py").write_bytes(b"changed")
    assert read == [4, 1]


def test_an_id_that_was_never_recorded_is_named(snapshots: WorkspaceSnapshots) -> None:
    for wanted in ("ab" * 32, "not hex", ""):
        with pytest.raises(SnapshotNotFound):
            snapshots.entries(SnapshotId(wanted))


def test_drift_names_what_was_edited_added_and_removed(
    root: Path, snapshots: WorkspaceSnapshots
) -> None:
    taken = snapshots.take()
    assert snapshots.drift(taken) == ()
    (root / "pkg/a.py").write_bytes(b"a = 2\r\n")
    (root / "new.py").write_text("")
    (root / "run.sh").unlink()
    (root / "link").unlink()
    (root / "link").symlink_to("elsewhere")
    (root / "build").mkdir()
    (root / "build/out").write_text("ignored")
    assert snapshots.drift(taken) == ("link", "new.py", "pkg/a.py", "run.sh")


def test_bytes_seen_by_drift_alone_are_stored_by_the_next_snapshot(
    root: Path, snapshots: WorkspaceSnapshots
) -> None:
    first = snapshots.take()
    (root / "pkg/a.py").write_bytes(b"edited")
    snapshots.drift(first)
    assert snapshots.read(snapshots.take(), "pkg/a.py") == b"edited"


def test_bytes_of_a_snapshot_that_failed_half_way_are_stored_by_the_next(
    root: Path, database: Database
) -> None:
    def fail(done: int, total: int) -> None:
        if failing:
            raise KeyboardInterrupt

    failing = [True]
    snapshots = WorkspaceSnapshots(root, database, home=HOME, now=later, progress=fail)
    with pytest.raises(KeyboardInterrupt):
        snapshots.take()
    failing.clear()
    taken = snapshots.take()
    assert snapshots.read(taken, "pkg/a.py") == b"a = 1\r\n"
    assert list(audit_content(database.connect(), database.directory)) == []


def test_a_path_that_became_ignored_drifts_only_if_its_bytes_do(
    root: Path, snapshots: WorkspaceSnapshots
) -> None:
    snapshots.take()
    changes = (Write(".gitignore", b"pkg/a.py\n"),)
    candidate = snapshots.candidate(Candidate(snapshots.take(), changes))
    apply(root, changes)
    assert snapshots.drift(candidate) == ()
    (root / "pkg/a.py").write_bytes(b"other")
    assert snapshots.drift(candidate) == ("pkg/a.py",)


def test_a_candidate_is_what_a_scan_finds_after_the_change(
    root: Path, snapshots: WorkspaceSnapshots
) -> None:
    base = snapshots.take()
    changes: tuple[Change, ...] = (
        Write("pkg/a.py", b"a = 2\r\n"),
        Write("pkg/new/deep/b.py", b"b"),
        Write("run.sh", b"#!/bin/sh\nexit 1\n"),
        Write("tool", b"x", 0o755),
        Delete(".gitignore"),
    )
    candidate = snapshots.candidate(Candidate(base, changes))
    assert snapshots.drift(base) == ()
    assert snapshots.read(candidate, "pkg/new/deep/b.py") == b"b"
    assert snapshots.entries(candidate)["run.sh"].mode == 0o755
    apply(root, changes)
    assert snapshots.drift(candidate) == ()
    assert snapshots.take() == candidate


def test_deleting_the_last_file_leaves_its_directory(
    root: Path, snapshots: WorkspaceSnapshots
) -> None:
    (root / "pkg/empty").rmdir()
    changes = (Delete("pkg/a.py"),)
    candidate = snapshots.candidate(Candidate(snapshots.take(), changes))
    apply(root, changes)
    assert snapshots.take() == candidate


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../out",
        "pkg/../../out",
        "pkg//a.py",
        "./a.py",
        "pkg/",
        "",
        "a\0b",
        "pkg\\a.py",
        "..\\out",
        ".git/config",
        "sub/.GIT/hooks/pre-commit",
        ".git. /config",
        ".git::$INDEX_ALLOCATION/config",
        "GIT~1/config",
        ".g\u200bit/config",
        ".veriloop-stage-1/x",
        "a/.Veriloop-Stage-2",
        "line\nbreak",
        "right\u202eleft",
        "x" * 256,
        "/".join(["d"] * 200),
        "bad\ud800",
        "link/a.py",
        "run.sh/inner",
        "link",
        "pkg",
        "pkg/empty",
        "debug.log",
        "build/out.py",
        "RUN.sh",
        "PKG/b.py",
        "pkg/A.PY",
    ],
)
def test_a_path_that_cannot_be_written_is_an_invalid_edit(
    snapshots: WorkspaceSnapshots, path: str
) -> None:
    base = snapshots.take()
    with pytest.raises(InvalidEdit):
        snapshots.candidate(Candidate(base, (Write(path, b"x"),)))


@pytest.mark.parametrize(
    "changes",
    [
        (Delete("missing"),),
        (Delete("link"),),
        (Delete("pkg"),),
        (Write("n", b""), Write("n", b"")),
        (Write("run.sh", b""), Delete("run.sh")),
        (Delete("run.sh"), Write("run.sh/in", b"")),
        (Write("n", b""), Write("n/in", b"")),
        (Write("n/in", b""), Write("n", b"")),
        (Write("name", b""), Write("Name", b"")),
        (Write("\u00e9", b""), Write("e\u0301", b"")),
        (Write("dir/x", b""), Write("Dir/y", b"")),
        (Write("run.sh", b"", 0o4755),),
        (Write("run.sh", b"", 0o100644),),
    ],
)
def test_changes_that_cannot_stand_together_are_an_invalid_edit(
    snapshots: WorkspaceSnapshots, changes: tuple[Change, ...]
) -> None:
    base = snapshots.take()
    with pytest.raises(InvalidEdit):
        snapshots.candidate(Candidate(base, changes))


def test_a_rename_that_only_changes_case_is_a_candidate(snapshots: WorkspaceSnapshots) -> None:
    base = snapshots.take()
    moved = snapshots.candidate(Candidate(base, (Write("RUN.sh", b"", 0o755), Delete("run.sh"))))
    assert "RUN.sh" in snapshots.entries(moved)


@given(st.text(max_size=30))
def test_a_path_that_is_accepted_stays_below_the_workspace(path: str) -> None:
    try:
        check_path(path)
    except InvalidEdit:
        return
    assert os.path.normpath(path) == path
    assert not path.startswith(("/", "../"))
    assert ".git" not in path.lower().split("/")


def test_a_diff_shows_both_sides(root: Path, snapshots: WorkspaceSnapshots) -> None:
    first = snapshots.take()
    (root / "run.sh").chmod(0o700)
    (root / "pkg/a.py").unlink()
    second = snapshots.take()
    gone, moved = snapshots.diff(first, second)
    assert (gone.path, gone.after) == ("pkg/a.py", None)
    assert moved.before is not None
    assert moved.after is not None
    assert (moved.path, moved.before.mode, moved.after.mode) == ("run.sh", 0o755, 0o700)


def test_the_changes_between_two_snapshots_lead_from_one_to_the_other(
    root: Path, snapshots: WorkspaceSnapshots
) -> None:
    first = snapshots.take()
    (root / "run.sh").chmod(0o700)
    (root / "pkg/a.py").unlink()
    (root / "pkg/b.py").write_bytes(b"\xff\xfe")
    second = snapshots.take()
    for old, new in ((second, first), (first, second)):
        changes = snapshots.changes_between(old, new)
        assert snapshots.candidate(Candidate(old, changes)) == new


def test_links_and_directories_are_not_among_the_changes(
    root: Path, snapshots: WorkspaceSnapshots
) -> None:
    first = snapshots.take()
    (root / "link").unlink()
    (root / "other").symlink_to("pkg")
    (root / "made").mkdir()
    (root / "run.sh").unlink()
    (root / "run.sh").symlink_to("pkg")
    second = snapshots.take()
    assert snapshots.changes_between(first, second) == (Delete("run.sh"),)
    back = snapshots.changes_between(second, first)
    with pytest.raises(InvalidEdit, match="symbolic link"):
        snapshots.candidate(Candidate(second, back))


def test_limits_are_the_ones_that_were_given(root: Path, database: Database) -> None:
    small = WorkspaceSnapshots(root, database, home=HOME, limits=ScanLimits(files=2))
    with pytest.raises(SnapshotRefused, match="more than 2 files"):
        small.take()


def test_home_is_refused_before_anything_is_read(root: Path, database: Database) -> None:
    with pytest.raises(SnapshotRefused, match="home"):
        WorkspaceSnapshots(root, database, home=root)


def test_several_threads_may_use_one_object(root: Path, snapshots: WorkspaceSnapshots) -> None:
    base = snapshots.take()

    def work(number: int) -> None:
        for turn in range(8):
            change = Write(f"t{number}/f{turn}.py", f"{number} {turn}".encode())
            made = snapshots.candidate(Candidate(base, (change,)))
            assert snapshots.read(made, change.path) == change.content
            assert snapshots.drift(base) == ()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_every_snapshot_and_candidate_passes_the_audit(
    snapshots: WorkspaceSnapshots, database: Database, root: Path
) -> None:
    base = snapshots.take()
    snapshots.candidate(Candidate(base, (Write("x/y.py", b"1"), Delete("run.sh"))))
    (root / "pkg/a.py").write_bytes(b"2")
    snapshots.take()
    assert list(audit_content(database.connect(), database.directory)) == []


def test_looking_again_tells_whether_anything_moved_since(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a").write_text("one")
    with Database(tmp_path / "data") as database:
        snapshots = WorkspaceSnapshots(root, database, home=tmp_path / "home")
        snapshots.take()
        before = snapshots.seen()
        assert snapshots.look_again() == before
        (root / "b").write_text("new")
        assert snapshots.seen() == before
        after = snapshots.look_again()
        assert after != before
        (root / "a").write_text("two")
        assert snapshots.look_again() != after


def test_a_settled_file_that_was_changed_and_put_back_has_moved(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a").write_text("one")
    later = time.time_ns() + 10**10
    with Database(tmp_path / "data") as database:
        snapshots = WorkspaceSnapshots(root, database, home=tmp_path / "home", now=lambda: later)
        taken = snapshots.take()
        before = snapshots.seen()
        (root / "a").write_text("two")
        (root / "a").write_text("one")
        assert snapshots.look_again() != before
        assert snapshots.drift(taken) == ()
