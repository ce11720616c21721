"""The `best` tier: bubblewrap with a read-only root, hidden homes, no network, no leftovers."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from veriloop_tui.contract.job import (
    GRACE,
    Job,
    Launch,
    Tier,
    Wires,
    environment,
    limited,
    supervised,
)
from veriloop_tui.contract.toolchain import toolchains

_REPORT_FOLDER = Path("/run/veriloop")
_SMALL = 64 << 20
_SECRET_FILES = tuple(map(Path, ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-")))
_SECRET_FOLDERS = (Path("/etc/ssh"),)
# What the kernel lets root change or read through /proc with no capability at all, since it looks
# only at the user id: shown read-only, or hidden.
_PROC_READ_ONLY = ("acpi", "bus", "driver", "fs", "irq", "mtrr", "scsi", "sys", "sysrq-trigger")
_PROC_HIDDEN = ("kcore", "keys", "kmsg", "latency_stats", "sched_debug", "timer_list")
_VOLATILE = ("/run", "/tmp", "/var/tmp")  # noqa: S108 - these are hidden, not used
_WORKSPACE_VENVS = (".venv", "venv", "env")


@dataclass(frozen=True, slots=True)
class BubblewrapSandbox:
    """Everything of the machine read-only or hidden; only the stage and the report folder writable.

    `hidden` are resolved folders that are empty inside: homes, volatile folders, and `private`,
    the program's own data. `shown` are the read-only toolchains below them.
    """

    bwrap: str
    prlimit: str
    path: str
    home: Path
    hidden: tuple[Path, ...]
    private: tuple[Path, ...]
    shown: tuple[Path, ...]
    tier: Tier = "best"
    notices: tuple[str, ...] = ()

    def report_folder(self, out: Path) -> Path:
        """A fixed folder inside."""
        return _REPORT_FOLDER

    def wrap(self, job: Job, wires: Wires) -> Launch:
        """The whole bubblewrap line."""
        variables = environment(self.path, str(self.home), "/tmp")  # noqa: S108 - the inner one
        argv = (
            self.bwrap,
            *("--unshare-user", "--uid", str(os.geteuid()), "--gid", str(os.getegid())),
            *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
            *("--unshare-cgroup-try", "--disable-userns", "--die-with-parent", "--new-session"),
            *("--cap-drop", "ALL", "--hostname", "sandbox", "--json-status-fd", str(wires.status)),
            *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
            *_guard_proc(),
            *("--size", str(_SMALL), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),  # noqa: S108
            *self._hide(job),
            *("--bind", str(job.out), str(_REPORT_FOLDER)),
            *("--bind", str(job.root), str(job.root), "--chdir", str(job.root)),
            "--clearenv",
            *(part for item in variables.items() for part in ("--setenv", *item)),
            "--",
            *limited(self.prlimit, job.limits, job.argv),
        )
        # bubblewrap ends with its parent, but not yet while it is setting up.
        return Launch(supervised("-", wires.leash, argv), variables, GRACE)

    def _hide(self, job: Job) -> Iterator[str]:
        for folder in self.hidden:
            yield from ("--size", str(job.limits.temporary), "--tmpfs", str(folder))
        yield from ("--dir", str(self.home))
        venvs = [job.root / name for name in _WORKSPACE_VENVS]
        for place in (*self.shown, *toolchains("", venvs, self.home, self.hidden, self.private)):
            if job.root not in place.parents:
                yield from ("--ro-bind", str(place), str(place))
        for secret in _SECRET_FOLDERS:
            if os.access(secret, os.F_OK):
                yield from ("--size", str(_SMALL), "--tmpfs", str(secret))
        for file in (*_SECRET_FILES, *self._sockets(job.root)):
            if os.access(file, os.F_OK):
                yield from ("--ro-bind", os.devnull, str(file))

    def _sockets(self, root: Path) -> Iterator[Path]:
        """Sockets in the file system that a read-only root would let a command connect to."""
        try:
            lines = Path("/proc/net/unix").read_bytes().splitlines()
        except OSError:
            return
        seen: set[Path] = set()
        for line in lines:
            fields = line.split(maxsplit=7)
            if len(fields) < 8 or not fields[7].startswith(b"/"):
                continue
            path = Path(os.path.realpath(os.fsdecode(fields[7])))
            if path in seen or any(top in path.parents for top in (*self.hidden, root)):
                continue
            seen.add(path)
            if _is_socket(path):
                yield path


def _guard_proc() -> Iterator[str]:
    for name in _PROC_READ_ONLY:
        if os.access(f"/proc/{name}", os.F_OK):
            yield from ("--ro-bind", f"/proc/{name}", f"/proc/{name}")
    for name in _PROC_HIDDEN:
        if os.access(f"/proc/{name}", os.F_OK):
            yield from ("--ro-bind", os.devnull, f"/proc/{name}")


def hidden_folders(home: Path, private: tuple[Path, ...]) -> tuple[Path, ...]:
    """Homes, volatile folders and `private`, resolved, existing, outermost first, none twice."""
    names = [*map(Path, (*_VOLATILE, "/root", "/home")), home, *private]
    real = {Path(os.path.realpath(name)) for name in names}
    existing = {folder for folder in real if os.access(folder, os.F_OK) and folder != Path("/")}
    return tuple(sorted(f for f in existing if not any(o in f.parents for o in existing - {f})))


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False
