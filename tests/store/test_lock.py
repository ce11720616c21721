"""The workspace lock, between real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from veriloop_tui.errors import WorkspaceBusy
from veriloop_tui.store.lock import LOCK_NAME, WorkspaceLock
from veriloop_tui.wiring.clock import SystemClock

HOLDER = """
import sys, time
from pathlib import Path
from veriloop_tui.store.lock import WorkspaceLock
from veriloop_tui.wiring.clock import SystemClock
with WorkspaceLock(Path(sys.argv[1]), Path("/project"), SystemClock()):
    print("held", flush=True)
    time.sleep(60)
"""


def start_holder(data: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(data)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_a_second_instance_is_told_who_holds_the_workspace(tmp_path: Path) -> None:
    child = start_holder(tmp_path / "data")
    try:
        with (
            pytest.raises(WorkspaceBusy, match=f"process {child.pid}, since 20"),
            WorkspaceLock(tmp_path / "data", tmp_path, SystemClock()),
        ):
            pass
    finally:
        child.kill()
        child.wait()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    child = start_holder(tmp_path / "data")
    child.send_signal(signal.SIGKILL)
    child.wait()
    with WorkspaceLock(tmp_path / "data", tmp_path, SystemClock()):
        assert str(os.getpid()) in (tmp_path / "data" / LOCK_NAME).read_text()


def test_a_holder_that_has_not_written_its_name_yet_is_still_a_holder(tmp_path: Path) -> None:
    child = start_holder(tmp_path / "data")
    (tmp_path / "data" / LOCK_NAME).write_text("")
    try:
        with (
            pytest.raises(WorkspaceBusy, match="just started"),
            WorkspaceLock(tmp_path / "data", tmp_path, SystemClock()),
        ):
            pass
    finally:
        child.kill()
        child.wait()


def test_one_lock_may_be_entered_again_and_is_free_after_the_last_exit(tmp_path: Path) -> None:
    lock = WorkspaceLock(tmp_path, tmp_path, SystemClock())
    other = WorkspaceLock(tmp_path, tmp_path, SystemClock())
    with lock:
        with lock:
            pass
        with pytest.raises(WorkspaceBusy), other:
            pass
    with other:
        pass


def test_the_data_directory_is_private(tmp_path: Path) -> None:
    with WorkspaceLock(tmp_path / "data", tmp_path, SystemClock()):
        assert (tmp_path / "data").stat().st_mode & 0o077 == 0
