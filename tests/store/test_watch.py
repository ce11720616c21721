"""Watching: hints that come from real files, and what happens where none can come."""

import errno
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from watchdog.events import FileSystemEvent, FileSystemEventHandler

from veriloop_tui.store.watch import Subscriptions, subscriptions, watch

SOON = 20.0
"""Seconds that a hint may take at most; it comes as soon as it can."""


class Hints:
    """Counts the calls."""

    def __init__(self) -> None:
        self.calls: queue.Queue[int] = queue.Queue()
        self.threads: set[int | None] = set()

    def __call__(self) -> None:
        self.threads.add(threading.get_ident())
        self.calls.put(1)

    def comes(self) -> bool:
        try:
            self.calls.get(timeout=SOON)
        except queue.Empty:
            return False
        return True


class Full:
    """An observer on a system without room for another watch."""

    def __init__(self) -> None:
        self.stopped = False

    def schedule(
        self,
        event_handler: FileSystemEventHandler,
        path: str,
        *,
        recursive: bool = False,
        event_filter: list[type[FileSystemEvent]] | None = None,
    ) -> object:
        return None

    def start(self) -> None:
        raise OSError(errno.ENOSPC, "inotify watch limit reached")

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def hints() -> Hints:
    return Hints()


@pytest.fixture
def start(tmp_path: Path, hints: Hints) -> Iterator[Callable[[], list[str]]]:
    notices: list[str] = []
    with ExitStack() as stack:

        def begin() -> list[str]:
            stack.enter_context(
                watch(tmp_path, hints, debounce=0.2, poll_every=60, notice=notices.append)
            )
            return notices

        yield begin


def test_an_edit_deep_in_the_workspace_gives_a_hint_from_another_thread(
    tmp_path: Path, hints: Hints, start: Callable[[], list[str]]
) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    assert start() == []
    (tmp_path / "a/b/f.py").write_text("x")
    assert hints.comes()
    assert hints.threads.isdisjoint({threading.get_ident()})


def test_an_edit_in_a_new_directory_gives_a_hint(
    tmp_path: Path, hints: Hints, start: Callable[[], list[str]]
) -> None:
    start()
    (tmp_path / "new/deep").mkdir(parents=True)
    assert hints.comes()
    (tmp_path / "new/deep/f.py").write_text("x")
    assert hints.comes()


def test_a_burst_of_edits_gives_few_hints(
    tmp_path: Path, hints: Hints, start: Callable[[], list[str]]
) -> None:
    start()
    for number in range(300):
        (tmp_path / f"f{number}").write_text("x")
    assert hints.comes()
    # On a busy machine the burst may have pauses that end it; each file is several events.
    assert hints.calls.qsize() < 100


def test_reading_and_derived_directories_give_no_hint(
    tmp_path: Path, hints: Hints, start: Callable[[], list[str]]
) -> None:
    for name in (".git", "node_modules/m", "pkg/__pycache__", "pkg/target"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "f").write_text("x")
    start()
    (tmp_path / "f").read_text()
    for name in (".git/x", "node_modules/m/x", "pkg/__pycache__/x", "pkg/target/x"):
        (tmp_path / name).write_text("x")
    (tmp_path / "last").write_text("x")
    assert hints.comes()
    threading.Event().wait(0.6)
    assert hints.calls.empty()


def test_after_the_context_no_hint_comes(tmp_path: Path, hints: Hints) -> None:
    with watch(tmp_path, hints, debounce=0.05, poll_every=60, notice=print):
        pass
    before = threading.active_count()
    (tmp_path / "f").write_text("x")
    threading.Event().wait(0.3)
    assert hints.calls.empty()
    assert "watch" not in {thread.name for thread in threading.enumerate()}
    assert threading.active_count() <= before


def test_without_room_for_watches_it_polls_and_says_so(tmp_path: Path, hints: Hints) -> None:
    notices: list[str] = []
    made: list[Full] = []

    def observer() -> Subscriptions:
        made.append(Full())
        return made[-1]

    with watch(
        tmp_path, hints, debounce=60, poll_every=0.05, notice=notices.append, observer=observer
    ):
        assert hints.comes()
        assert hints.comes()
    (said,) = notices
    assert "every 0.05 seconds" in said
    assert "limit of watched directories" in said
    assert made[0].stopped


def test_only_what_is_worth_watching_is_subscribed_to(tmp_path: Path) -> None:
    for name in ("src/a/b", "web/node_modules/x/y", "web/src", ".git/objects/aa", "docs"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "web/node_modules")
    found = {(str(Path(p).relative_to(tmp_path)), deep) for p, deep in subscriptions(tmp_path)}
    assert found == {
        (".", False),
        ("src", True),
        ("docs", True),
        ("web", False),
        ("web/src", True),
    }


def test_a_workspace_with_nothing_to_leave_out_is_one_subscription(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    assert subscriptions(tmp_path) == ((str(tmp_path), True),)


def test_nothing_is_written_to_the_screen(tmp_path: Path) -> None:
    script = """
import pathlib, sys, threading
from veriloop_tui.store.watch import watch
root = pathlib.Path(sys.argv[1])
came = threading.Event()
with watch(root, came.set, debounce=0.3, poll_every=60, notice=print):
    for i in range(40):
        (root / f"d{i}/a/b/c").mkdir(parents=True)
    for i in range(20):
        (root / f"d{i}").rename(root / f"e{i}")
    came.wait(20)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
