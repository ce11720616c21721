"""A worker process seen from outside: started, read line by line, ended."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from veriloop_tui.core.ports import Cancel
from veriloop_tui.errors import Cancelled

_POLL_SECONDS: Final = 0.1
_LINE_BYTES: Final = 1 << 20
_LAST_LINES: Final = 6
_GRACE_SECONDS: Final = 3.0
_WAITING_LINES: Final = 1_000
# `-m` would look for modules in the working directory first, and that may be anybody's folder.
_ROOT: Final = Path(__file__).parents[1]
_BOOT: Final = (
    "import sys; sys.path.append(sys.argv.pop(1)); module = sys.argv.pop(1); "
    "import importlib; sys.exit(importlib.import_module(module).main())"
)


class Worker:
    """A Python process that runs `main` of a module with one argument.

    `code` and `last_words` tell of its end, once `lines` is through.
    """

    def __init__(self, module: str, argument: str, inherited: tuple[int, ...] = ()) -> None:
        """Start it. The descriptors `inherited` stay open in it. Raises `OSError`."""
        command = [sys.executable, "-P", "-c", _BOOT, str(_ROOT), module, argument]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=inherited,
            # Ctrl-C in the terminal is for the program, which then ends the worker itself.
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue(_WAITING_LINES)
        self._words: deque[str] = deque(maxlen=_LAST_LINES)
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._threads = (
            threading.Thread(target=self._read, args=(self._child.stdout,), daemon=True),
            threading.Thread(target=self._keep, args=(self._child.stderr,), daemon=True),
        )
        for thread in self._threads:
            thread.start()

    @property
    def last_words(self) -> str:
        """The last lines that it wrote on standard error."""
        return " ".join(self._words)

    @property
    def ending(self) -> str:
        """How it ended, empty if it ended well."""
        code = self._child.poll()
        if not code:
            return ""
        known = [one.name for one in signal.Signals if one.value == -code]
        return f"its process was ended by {known[0]}" if known else f"exit code {code}"

    def send(self, line: str) -> None:
        """Write a line to its standard input; one that has ended does not get it."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(line.encode() + b"\n")
            self._child.stdin.flush()
        except (OSError, ValueError):
            # The pipe is broken or closed: `lines` is through as well, and tells of it.
            return

    def lines(self, cancel: Cancel) -> Iterator[str]:
        """Its output, until it ends. Raises `Cancelled`; the worker is gone in any case."""
        try:
            while True:
                if cancel.is_set():
                    raise Cancelled
                try:
                    line = self._lines.get(timeout=_POLL_SECONDS)
                except queue.Empty:
                    continue
                if line is None:
                    self._child.wait()
                    return
                yield line
        finally:
            self.end()

    def end(self) -> None:
        """End it, if it still runs."""
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        # A reader that waits for room would wait for ever, since nobody takes lines any more.
        while self._threads[0].is_alive():
            try:
                self._lines.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
        self._threads[1].join()
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe is not None:
                pipe.close()

    def _read(self, pipe: IO[bytes]) -> None:
        while line := pipe.readline(_LINE_BYTES):
            self._lines.put(line.decode("utf-8", "replace").rstrip("\n"))
        self._lines.put(None)

    def _keep(self, pipe: IO[bytes]) -> None:
        while line := pipe.readline(_LINE_BYTES):
            text = line.decode("utf-8", "replace").strip()
            if text:
                self._words.append("".join(char if char.isprintable() else "?" for char in text))
