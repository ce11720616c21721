"""The app in a real terminal, with real keys: tmux types and reads the screen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Terminal:
    """One tmux server of our own, with one window."""

    tmux: str
    socket: Path

    def call(self, *arguments: str) -> str:
        """One tmux command."""
        done = subprocess.run(
            [self.tmux, "-u", "-S", str(self.socket), "-f", "/dev/null", *arguments],
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    def start(self, columns: int, rows: int, delay: float) -> None:
        """Play a session in the window, then leave its shell there."""
        play = f"cd '{ROOT}' && '{sys.executable}' -m tests.tui.play {delay}; exec cat"
        size = ("-x", str(columns), "-y", str(rows))
        self.call("new-session", "-d", *size, "sh", "-c", play)

    def keys(self, *keys: str) -> None:
        """Press keys, by tmux's names."""
        self.call("send-keys", *keys)

    def screen(self) -> str:
        """What the window shows."""
        return self.call("capture-pane", "-p")

    def until(self, wanted: Callable[[str], bool]) -> str:
        """The screen, once it shows what is wanted."""
        for _ in range(600):
            shown = self.screen()
            if wanted(shown):
                return shown
            time.sleep(0.05)
        raise AssertionError(f"it never came; the screen shows\n{self.screen()}")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    tmux = shutil.which("tmux")
    if tmux is None:
        pytest.fail("tmux is not installed: `apt-get install tmux`, or your system's equivalent")
    opened = Terminal(tmux, tmp_path / "socket")
    yield opened
    opened.call("kill-server")


def test_a_task_is_typed_and_its_candidates_answered_in_a_real_terminal(
    terminal: Terminal,
) -> None:
    terminal.start(80, 24, 0.01)
    terminal.until(lambda shown: "Checks · rank 6" in shown and "ready" in shown)
    terminal.keys("-l", "make the tests pass")
    terminal.until(lambda shown: "> make the tests pass" in shown)
    terminal.keys("Enter")
    terminal.until(
        lambda shown: (
            "Commit attempt 2?" in shown
            and "+    return n % 2 == 0" in shown
            and "a Approve  r Reject  s Stop" in shown
        )
    )
    time.sleep(0.5)
    terminal.keys("a")
    shown = terminal.until(lambda shown: "Commit attempt 5?" in shown)
    assert "✓  2 is_even committed 6→5" in shown
    assert "✗  3 clamp incomparable 5→5" in shown
    time.sleep(0.5)
    terminal.keys("r")
    terminal.until(lambda shown: "Why not?" in shown)
    terminal.keys("-l", "too clever")
    terminal.keys("Enter")
    shown = terminal.until(lambda shown: "ready" in shown)
    assert "✗  5 clamp user-rejected" in shown
    assert "The budget is spent: attempts." in shown
    terminal.keys("q")
    terminal.until(lambda shown: "ended: budget-spent" in shown)


def test_ctrl_c_stops_the_run_and_then_gives_the_terminal_back(terminal: Terminal) -> None:
    terminal.start(100, 30, 0.05)
    terminal.until(lambda shown: "ready" in shown)
    terminal.keys("-l", "x")
    terminal.keys("Enter")
    terminal.until(lambda shown: "Here is the" in shown)
    terminal.keys("C-c")
    terminal.until(lambda shown: "Stopped." in shown and "ready" in shown)
    terminal.keys("C-c")
    shown = terminal.until(lambda shown: "ended: stopped" in shown)
    assert "VeriLoop" not in shown
