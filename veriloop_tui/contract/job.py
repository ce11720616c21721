"""One command to run and how a sandbox starts it: the types that the tiers and the runner share."""

from __future__ import annotations

import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

Tier = Literal["best", "reduced", "none"]

_MIB = 1 << 20


def _half_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


@dataclass(frozen=True, slots=True)
class Limits:
    """What one command may use. Sizes in bytes.

    `file_size` bounds each file, `memory` the resident memory of all its processes together
    (looked at several times a second), `processes` and `open_files` are counts.
    """

    output: int = 64 * _MIB
    report: int = 64 * _MIB
    file_size: int = 1024 * _MIB
    temporary: int = 1024 * _MIB
    processes: int = 1024
    open_files: int = 4096
    memory: int = _half_of_memory()


@dataclass(frozen=True, slots=True)
class Wires:
    """Two inherited file descriptors that join the runner to what it started.

    On `status` come lines of JSON: `{"child-pid": N}` for a first process whose end is the end of
    all, and `{"exit-code": N}` once the command itself has ended. `leash` is a pipe's read end:
    when the other end closes, a supervisor kills everything below it.
    """

    status: int
    leash: int


@dataclass(frozen=True, slots=True)
class Job:
    """A command, as the sandbox gets it.

    `root` is where the command starts and may write; `out` is a host folder for its report,
    writable under the name that `Sandbox.report_folder` gives; `private` is a host folder for the
    tiers that have no file systems of their own.
    """

    argv: tuple[str, ...]
    root: Path
    out: Path
    private: Path
    limits: Limits


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start. `grace` is how many seconds a supervisor gets to kill what it started."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    grace: float


class Sandbox(Protocol):
    """One isolation tier."""

    @property
    def tier(self) -> Tier:
        """Its name."""
        ...

    @property
    def notices(self) -> tuple[str, ...]:
        """What it does not stop, in sentences for the user; empty for `best`."""
        ...

    def report_folder(self, out: Path) -> Path:
        """The path under which the command sees `Job.out`."""
        ...

    def wrap(self, job: Job, wires: Wires) -> Launch:
        """How to start the job inside the sandbox."""
        ...


def environment(path: str, home: str, temporary: str) -> dict[str, str]:
    """The whole environment of a command: the same on every machine but for the three paths."""
    return {
        "PATH": path,
        "HOME": home,
        "TMPDIR": temporary,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "CI": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


# Seconds that a supervisor gets to kill what it started.
GRACE = 4.0
_REAPER = Path(__file__).with_name("reap.py")


def supervised(status: str, leash: int, argv: tuple[str, ...]) -> tuple[str, ...]:
    """`argv` under a supervisor that ends all it started when the leash's other end closes.

    `status` is the descriptor for the supervisor's report, `-` for none.
    """
    return (sys.executable, "-I", "-S", str(_REAPER), status, str(leash), *argv)


def limited(prlimit: str, limits: Limits, argv: tuple[str, ...]) -> tuple[str, ...]:
    """`argv` under resource limits, none of them above what this process may have itself."""
    wanted = (
        ("nproc", resource.RLIMIT_NPROC, limits.processes),
        ("fsize", resource.RLIMIT_FSIZE, limits.file_size),
        ("nofile", resource.RLIMIT_NOFILE, limits.open_files),
        ("core", resource.RLIMIT_CORE, 0),
    )
    options: list[str] = []
    for name, which, value in wanted:
        _, hard = resource.getrlimit(which)
        options.append(f"--{name}={value if hard == resource.RLIM_INFINITY else min(value, hard)}")
    return (prlimit, *options, "--", *argv)
