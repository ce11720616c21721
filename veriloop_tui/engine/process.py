"""The engine's child process: start it, wait until it is ready, see its end, restart it."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from veriloop_tui.core.ports import Cancel
from veriloop_tui.engine.client.client import Endpoint, EngineClient
from veriloop_tui.engine.gguf.facts import check_loadable, read_facts
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import EngineCrashed, EngineStartFailed

_LOG_LINES: Final = 40
_LINE_BYTES: Final = 500
_LAST_WORDS: Final = 6
_POLL_SECONDS: Final = 0.03
# Steps down from what should fit, when the system kills the child for want of memory.
_MAX_SMALLER: Final = 4
_GRACE_SECONDS: Final = 3.0
# Writing gigabytes of context to a disk takes its time.
_KEEPING_SECONDS: Final = 60.0
# `-m` would look for modules in the working directory first, and that is somebody's workspace:
# a file `uvicorn.py` in it would run as part of the engine.
_ROOT: Final = Path(__file__).parents[2]
_BOOT: Final = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from veriloop_tui.engine.serving.serve import main; sys.exit(main())"
)


class EngineProcess:
    """One engine on a Unix socket in a private folder; a context manager.

    Whatever native code does to the child, this process lives.
    """

    def __init__(self, load: LoadSettings, start_seconds: float = 900.0) -> None:
        """`start_seconds` bounds the wait: a large model comes slowly from a slow disk."""
        self._load = load
        self._start_seconds = start_seconds
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def socket_path(self) -> Path:
        """The socket; it stays the same over restarts."""
        if self._folder is None:
            # mkdtemp makes it 0700, so nobody else reaches the socket.
            self._folder = tempfile.TemporaryDirectory(prefix="veriloop-")
        return Path(self._folder.name) / "engine.sock"

    @property
    def pid(self) -> int | None:
        """The child's process id, `None` when there is none."""
        return self._child.pid if self._child is not None else None

    @property
    def log(self) -> str:
        """The last lines that the child wrote."""
        return "\n".join(self._log)

    def start(self, cancel: Cancel | None = None) -> None:
        """Start the child and wait until its model is loaded; a set `cancel` gives up.

        Raises `ModelNotFound`, `ModelFileInvalid`, `EngineStartFailed`; then no child is left.
        """
        check_loadable(read_facts(self._load.model))
        for smaller in range(_MAX_SMALLER + 1):
            self._spawn(replace(self._load, smaller=smaller))
            try:
                self._wait_until_ready(cancel)
            except BaseException:
                killed = self._child is not None and self._child.poll() == -signal.SIGKILL
                self._end_child()
                # Nobody else kills an engine that is loading: memory ran out.
                if not killed or smaller == _MAX_SMALLER:
                    raise
            else:
                return

    def restart(self, cancel: Cancel | None = None) -> None:
        """End the child if it still runs, and start anew. Raises what `start` raises."""
        self._end_child()
        self.start(cancel)

    def stop(self) -> None:
        """End the child and remove its socket."""
        self._end_child()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def crash(self) -> EngineCrashed | None:
        """The error that stands for the child's end, `None` while it runs."""
        child = self._child
        if child is None:
            return EngineCrashed("it is not running")
        code = child.poll()
        if code is None:
            return None
        return EngineCrashed(_ending(code), self._last_words())

    def client(self) -> EngineClient:
        """A client of this engine; it works over restarts."""
        return EngineClient(Endpoint(socket_path=self.socket_path), self.crash)

    def _spawn(self, load: LoadSettings) -> None:
        self._log.clear()
        command = [sys.executable, "-P", "-c", _BOOT, str(_ROOT), "--die-with-parent"]
        command += ["--load", load.to_json(), "--socket", str(self.socket_path)]
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal is for the app, which then ends the child itself.
                start_new_session=True,
            )
        except OSError as problem:
            raise EngineStartFailed(problem.strerror or str(problem), "") from problem
        assert child.stdout is not None
        self._child = child
        self._reader = threading.Thread(
            target=_drain, args=(child.stdout, self._log), name="engine-log", daemon=True
        )
        self._reader.start()

    def _wait_until_ready(self, cancel: Cancel | None) -> None:
        deadline = time.monotonic() + self._start_seconds
        client = self.client()
        while True:
            try:
                if client.ready():
                    return
            except EngineCrashed as crash:
                raise EngineStartFailed(crash.problem, crash.log) from None
            if cancel is not None and cancel.is_set():
                raise EngineStartFailed("it was cancelled", "")
            if time.monotonic() > deadline:
                raise EngineStartFailed(
                    f"it was not ready after {self._start_seconds:.0f} s", self.log
                )
            time.sleep(_POLL_SECONDS)

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.terminate()
        try:
            child.wait(_GRACE_SECONDS if self._load.state_file is None else _KEEPING_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if self._reader is not None:
            self._reader.join(1.0)
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()

    def _last_words(self) -> str:
        if self._reader is not None:
            self._reader.join(0.5)
        return "\n".join(list(self._log)[-_LAST_WORDS:])


def _drain(pipe: IO[bytes], log: deque[str]) -> None:
    """Keep the end of what the child writes, so that it never blocks on a full pipe."""
    while line := pipe.readline(_LINE_BYTES):
        text = line.decode("utf-8", "replace").rstrip()
        if text:
            log.append("".join(char if char.isprintable() else "?" for char in text))


def _ending(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}"
    known = [one.name for one in signal.Signals if one.value == -code]
    return f"its process was ended by {known[0] if known else f'signal {-code}'}"
