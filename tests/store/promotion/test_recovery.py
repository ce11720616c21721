"""A kill at any step of a promotion, or of its recovery, leaves all old or all new."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.store.promotion.promotion_ground import (
    BASE,
    BUNDLE,
    CHANGES,
    RESULT,
    Ground,
    content_of,
    make_ground,
)
from veriloop_tui.core.snapshot import Candidate, Delete, Write
from veriloop_tui.errors import PromotionUnsettled, StoreDamaged
from veriloop_tui.store.promotion.exchange import Renames, kernel_renames
from veriloop_tui.store.promotion.journal import JOURNAL_NAME

Kernel = Callable[[int], Renames | None]
WAYS: dict[str, Kernel] = {"kernel": kernel_renames, "plain": lambda directory: None}


class KillAt:
    """Kills its own process at the n-th step, the first being 1."""

    def __init__(self, last: int) -> None:
        self.left = last

    def __call__(self, name: str) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def killed(job: Callable[[], object]) -> bool:
    """Run a job in a process of its own; whether it was killed by SIGKILL."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            job()
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


def promote_with(ground: Ground, step: Callable[[str], None], kernel: Kernel) -> None:
    def commit() -> None:
        step("before the ledger")
        ground.commit()
        step("after the ledger")

    ground.promoter(step=step, kernel=kernel).promote(
        Candidate(BASE, CHANGES), RESULT, BUNDLE, commit
    )


def expected_states(folder: Path) -> tuple[dict[str, object], dict[str, object]]:
    old, new = make_ground(folder / "expect-old"), make_ground(folder / "expect-new")
    old.fill()
    new.fill()
    promote_with(new, lambda name: None, kernel_renames)
    return dict(content_of(old.root)), dict(content_of(new.root))


@pytest.mark.parametrize("way", WAYS)
def test_a_kill_at_any_step_is_all_old_or_all_new_and_agrees_with_the_ledger(
    tmp_path: Path, way: str
) -> None:
    old, new = expected_states(tmp_path)
    at, seen = 0, set()
    while True:
        at += 1
        ground = make_ground(tmp_path / f"kill-{at}")
        ground.fill()
        if not killed(partial(promote_with, ground, KillAt(at), WAYS[way])):
            break
        report = ground.promoter(kernel=WAYS[way]).recover()
        committed = ground.committed(BUNDLE)
        assert content_of(ground.root) == (new if committed else old), at
        assert ground.leftovers() == [], at
        assert report.kept == ()
        if report.outcome != "nothing-open":
            assert report.outcome == ("finished" if committed else "rolled-back")
        assert ground.promoter().recover().outcome == "nothing-open"
        seen.add((committed, report.outcome))
    assert at > 25
    assert {(False, "rolled-back"), (True, "finished")} <= seen


@pytest.mark.parametrize(("way", "stride"), [("kernel", 1), ("plain", 5)])
def test_a_kill_at_any_step_of_any_recovery_is_recovered_from(
    tmp_path: Path, way: str, stride: int
) -> None:
    old, new = expected_states(tmp_path)
    kernel = WAYS[way]
    at, kills = 0, 0
    while True:
        at += 1
        probe = make_ground(tmp_path / f"probe-{at}")
        probe.fill()
        if not killed(partial(promote_with, probe, KillAt(at), kernel)):
            break
        steps: list[str] = []
        probe.promoter(step=steps.append, kernel=kernel).recover()
        for recovery_at in range(1 + at % stride, len(steps) + 1, stride):
            ground = make_ground(tmp_path / f"kill-{at}-{recovery_at}")
            ground.fill()
            assert killed(partial(promote_with, ground, KillAt(at), kernel))
            recovering = ground.promoter(step=KillAt(recovery_at), kernel=kernel)
            assert killed(recovering.recover)
            ground.promoter(kernel=kernel).recover()
            wanted = new if ground.committed(BUNDLE) else old
            assert content_of(ground.root) == wanted, (at, recovery_at)
            assert ground.leftovers() == [], (at, recovery_at)
            kills += 1
    assert kills > 100 / stride


def kill_named(ground: Ground, name: str, *changes: Write | Delete) -> None:
    """Promote, and be killed right after the step of this name."""

    def step(reached: str) -> None:
        if reached == name:
            os.kill(os.getpid(), signal.SIGKILL)

    promoter = ground.promoter(step=step)
    assert killed(lambda: promoter.promote(Candidate(BASE, changes), RESULT, BUNDLE, ground.commit))


def test_a_file_the_user_saved_after_the_crash_stays_and_the_old_one_is_kept_aside(
    tmp_path: Path,
) -> None:
    ground = make_ground(tmp_path)
    ground.fill()
    kill_named(ground, "synced", Write("a.py", b"new"), Write("pkg/b.py", b"new"))
    (ground.root / "a.py").write_bytes(b"the user's")
    notices: list[str] = []
    report = ground.promoter(notices=notices).recover()
    assert (ground.root / "a.py").read_bytes() == b"the user's"
    assert (ground.root / "pkg/b.py").read_bytes() == b"old b"
    assert [Path(path).read_bytes() for path in report.kept] == [b"old a\r\n"]
    assert any(report.kept[0] in notice for notice in notices)


def test_a_new_file_the_user_changed_after_the_crash_stays(tmp_path: Path) -> None:
    ground = make_ground(tmp_path)
    ground.fill()
    kill_named(ground, "synced", Write("fresh/deep/c.py", b"new"))
    (ground.root / "fresh/deep/c.py").write_bytes(b"the user's")
    ground.promoter().recover()
    assert (ground.root / "fresh/deep/c.py").read_bytes() == b"the user's"
    assert ground.leftovers() == []


def test_a_file_the_user_put_where_one_was_deleted_stays(tmp_path: Path) -> None:
    ground = make_ground(tmp_path)
    ground.fill()
    kill_named(ground, "synced", Delete("pkg/gone.py"))
    (ground.root / "pkg/gone.py").write_bytes(b"the user's")
    report = ground.promoter().recover()
    assert (ground.root / "pkg/gone.py").read_bytes() == b"the user's"
    assert [Path(path).read_bytes() for path in report.kept] == [b"old gone\n"]


def test_what_the_user_wrote_into_a_replaced_file_after_the_commit_goes_back_to_its_path(
    tmp_path: Path,
) -> None:
    ground = make_ground(tmp_path)
    ground.fill()
    kill_named(ground, "committed", Write("a.py", b"new"))
    stage = next(ground.data.glob("stage-*"))
    (stage / "0").write_bytes(b"the user's")
    notices: list[str] = []
    ground.promoter(notices=notices).recover()
    assert (ground.root / "a.py").read_bytes() == b"the user's"
    assert any("a.py" in notice for notice in notices)
    assert ground.leftovers() == []


def test_a_rolled_back_file_gets_a_later_mtime_than_the_version_that_was_in_its_place(
    tmp_path: Path,
) -> None:
    ground = make_ground(tmp_path)
    ground.fill()
    kill_named(ground, "synced", Write("a.py", b"new a\r\n"))
    between = (ground.root / "a.py").stat().st_mtime_ns
    ground.promoter().recover()
    assert (ground.root / "a.py").stat().st_mtime_ns >= between + 1_000_000_000


def test_a_damaged_journal_is_reported_and_nothing_is_touched(tmp_path: Path) -> None:
    ground = make_ground(tmp_path)
    ground.fill()
    kill_named(ground, "synced", Write("a.py", b"new"))
    journal = ground.data / JOURNAL_NAME
    content = bytearray(journal.read_bytes())
    content[-20] ^= 1
    journal.write_bytes(content)
    with pytest.raises(StoreDamaged):
        ground.promoter().recover()
    assert (ground.root / "a.py").read_bytes() == b"new"


def test_an_undo_that_cannot_go_on_is_finished_by_the_next_recovery(tmp_path: Path) -> None:
    ground = make_ground(tmp_path)
    ground.fill()

    def step(name: str) -> None:
        if name == "exchanged pkg/b.py":
            (ground.root / "pkg/b.py").write_bytes(b"the user's")
        if name.startswith("undone"):
            raise OSError(28, "No space left on device")

    promoter = ground.promoter(step=step)
    with pytest.raises(PromotionUnsettled):
        promoter.promote(
            Candidate(BASE, (Write("a.py", b"new"), Write("pkg/b.py", b"new"))),
            RESULT,
            BUNDLE,
            ground.commit,
        )
    assert ground.promoter().recover().outcome == "rolled-back"
    assert (ground.root / "a.py").read_bytes() == b"old a\r\n"
    assert (ground.root / "pkg/b.py").read_bytes() == b"the user's"


def test_the_next_promotion_settles_what_was_left_open(tmp_path: Path) -> None:
    ground = make_ground(tmp_path)
    ground.fill()
    base = ground.promoter()
    kill_named(ground, "synced", Write("a.py", b"new"))
    candidate = Candidate(BASE, (Write("a.py", b"newer"),))
    base.promote(candidate, RESULT, "bundle-2", lambda: ground.commit("bundle-2"))
    assert (ground.root / "a.py").read_bytes() == b"newer"
    assert ground.leftovers() == []
