"""The workspace lock: one running program per workspace.

It is an flock on a file that is never removed, so a lock dies with its holder and there is nothing
stale to clean up; the file's text only says who holds it.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from veriloop_tui.core.ports import Clock
from veriloop_tui.errors import WorkspaceBusy

LOCK_NAME = "lock"


class WorkspaceLock:
    """Held while used as a context; entering it again within the same process is allowed.

    `data` is the workspace's data directory, made if missing (mode 0700); `root` names the
    workspace in the error. Entering raises `WorkspaceBusy` where another process holds it.
    """

    def __init__(self, data: Path, root: Path, clock: Clock) -> None:
        self._path, self._root, self._clock = data / LOCK_NAME, root, clock
        self._guard = threading.Lock()
        self._depth, self._fd = 0, -1

    def __enter__(self) -> WorkspaceLock:
        with self._guard:
            if self._depth == 0:
                self._fd = self._acquire()
            self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._guard:
            self._depth -= 1
            if self._depth == 0:
                os.close(self._fd)

    def _acquire(self) -> int:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _describe(os.pread(fd, 4096, 0))
            os.close(fd)
            raise WorkspaceBusy(str(self._root), holder) from None
        text = json.dumps({"pid": os.getpid(), "since": self._clock.now()})
        os.ftruncate(fd, 0)
        os.pwrite(fd, text.encode(), 0)
        return fd


def _describe(text: bytes) -> str:
    """The holder in words; it may just be writing its name down."""
    try:
        fields = json.loads(text)
        since = datetime.fromtimestamp(fields["since"], UTC)
        return f"process {int(fields['pid'])}, since {since:%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, KeyError, TypeError, OverflowError):
        return "a process that has just started"
