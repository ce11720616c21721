"""A workspace, a home and a host to run attacks from, in every tier."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from veriloop_tui.contract.command import Place, Ran, run_command
from veriloop_tui.contract.job import Limits, Sandbox, Tier
from veriloop_tui.contract.sandbox import Host, choose_sandbox
from veriloop_tui.core.ports import Cancel, Stager
from veriloop_tui.store.staging.ladder import WantedRung, choose_stager
from veriloop_tui.wiring.clock import SystemClock

PYTHON = sys.executable


@dataclass(frozen=True, slots=True)
class Ground:
    """Folders of one test: a workspace, a user's home, and the program's data."""

    root: Path
    home: Path
    data: Path

    def host(self, path: str | None = None) -> Host:
        return Host(os.environ["PATH"] if path is None else path, self.home, (self.data,))

    def sandbox(self, tier: Tier) -> Sandbox:
        return choose_sandbox(tier, self.host(), SystemClock())

    def stager(self, rung: WantedRung = "overlay") -> Stager:
        return choose_stager(self.root, self.data / "scratch", rung)[0]

    def run(
        self,
        line: str | tuple[str, ...],
        tier: Tier = "best",
        *,
        rung: WantedRung = "overlay",
        timeout: float = 60.0,
        limits: Limits | None = None,
        cancel: Cancel | None = None,
    ) -> Ran:
        """Run one shell line or argv in a fresh stage; `{report}` is the report's path."""
        argv = ("/bin/sh", "-c", line) if isinstance(line, str) else line
        with self.stager(rung).stage(()) as stage:
            return run_command(
                lambda report: tuple(part.replace("{report}", str(report)) for part in argv),
                timeout,
                Place(stage.root, stage.scratch / "run", stage.enter),
                self.sandbox(tier),
                limits or Limits(),
                SystemClock(),
                cancel or threading.Event(),
            )


def make_ground(folder: Path) -> Ground:
    """Empty but for the folders."""
    ground = Ground(folder / "work", folder / "home", folder / "home" / "data")
    for made in (ground.root, ground.home, ground.data):
        made.mkdir(exist_ok=True)
    return ground


def python(program: str) -> tuple[str, ...]:
    """The argv of a program for this interpreter."""
    return (PYTHON, "-c", program)


def alive(mark: str) -> list[int]:
    """The processes of this machine whose command line holds `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in line:
                found.append(int(entry.name))
    return found


def soon(holds: Callable[[], bool]) -> bool:
    """Whether it comes to hold within a few seconds."""
    for _ in range(500):
        if holds():
            return True
        time.sleep(0.01)
    return False


_numbers = count(1)


@contextmanager
def marked() -> Iterator[str]:
    """A word that no other process of this machine has in its command line."""
    yield f"mark-{os.getpid()}-{next(_numbers)}-of-a-test"
