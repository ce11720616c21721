"""The tiers without bubblewrap: `reduced` and `none`. Both leave no process behind."""

from __future__ import annotations

import os
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

_LIFE = ("--fork", "--kill-child=SIGKILL", "--mount-proc")


@dataclass(frozen=True, slots=True)
class SupervisedSandbox:
    """Limits, a clean environment, and a supervisor that kills every process at the end.

    `unshare` is a prefix of argv that enters namespaces for processes, network, and the like; it
    is empty where there are none. `prlimit` is a program's absolute path, `path` the user's PATH.
    """

    tier: Tier
    notices: tuple[str, ...]
    prlimit: str
    path: str
    unshare: tuple[str, ...] = ()

    def report_folder(self, out: Path) -> Path:
        """The folder itself: this tier hides nothing."""
        return out

    def wrap(self, job: Job, wires: Wires) -> Launch:
        """Supervisor, limits, command; with a home and a temporary folder of its own."""
        home, temporary = job.private / "home", job.private / "tmp"
        for folder in (home, temporary):
            folder.mkdir(exist_ok=True)
        command = limited(self.prlimit, job.limits, job.argv)
        return Launch(
            (*self.unshare, *supervised(str(wires.status), wires.leash, command)),
            environment(self.path, str(home), str(temporary)),
            GRACE,
        )


def namespaces(unshare: str) -> tuple[str, ...]:
    """The prefix that enters new namespaces and keeps the user's own id."""
    ids = (f"--map-user={os.geteuid()}", f"--map-group={os.getegid()}")
    kinds = ("--user", "--pid", "--net", "--ipc", "--uts")
    return (unshare, *kinds, *ids, "--keep-caps", *_LIFE, "--")
