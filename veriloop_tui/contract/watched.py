"""A started command as seen from here: its end, the end of all below it, and how to force it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from veriloop_tui.contract.job import Launch, Wires

_SURVIVORS_SECONDS = 10.0


@contextmanager
def open_wires() -> Iterator[tuple[Wires, int, Leash]]:
    """Fresh wires, the status wire's read end, and the leash; the child's two ends stay open."""
    status, status_end = os.pipe()
    leash_end, leash = os.pipe()
    os.set_blocking(status, False)
    holder = Leash(leash)
    try:
        yield Wires(status_end, leash_end), status, holder
    finally:
        holder.let_go()
        os.close(status)


class Leash:
    """The end of a pipe whose closing tells a supervisor to kill everything."""

    def __init__(self, wire: int) -> None:
        self._wire = wire

    def let_go(self) -> None:
        """Close it, once."""
        if self._wire >= 0:
            os.close(self._wire)
            self._wire = -1


class Watched:
    """A started command: its process, and what came on the status wire so far."""

    def __init__(
        self, process: subprocess.Popen[bytes], launch: Launch, status: int, leash: Leash
    ) -> None:
        self.process = process
        self._grace = launch.grace
        self._status = status
        self._leash = leash
        self._heard = b""
        self._first: int | None = None  # a pidfd of the process whose end is the end of all
        self._ended = os.pidfd_open(process.pid)

    def wait(self, seconds: float) -> bool:
        """Whether the process has ended, after at most so long."""
        self._listen()
        ended = _readable(self._ended, seconds)
        if ended:
            self.process.wait()
        return ended

    def kill(self) -> bool:
        """End everything; whether all has ended."""
        self._leash.let_go()
        if self._grace:
            self.wait(self._grace)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return self.settle()

    def settle(self) -> bool:
        """Wait for the last process below the ended one; whether all have ended."""
        self._listen()
        os.close(self._ended)
        if self._first is None:
            return True
        ended = _readable(self._first, _SURVIVORS_SECONDS)
        os.close(self._first)
        return ended

    def exit_code(self) -> int | None:
        """What the command itself ended with, `None` where that is not known."""
        for line in self._heard.splitlines():
            if (code := _number(line, "exit-code")) is not None:
                return code
        return None

    def _listen(self) -> None:
        while True:
            try:
                heard = os.read(self._status, 4096)
            except BlockingIOError:
                break
            if not heard:
                break
            self._heard += heard
        if self._first is None:
            for line in self._heard.splitlines():
                if (pid := _number(line, "child-pid")) is not None:
                    try:
                        self._first = os.pidfd_open(pid)
                    except ProcessLookupError:
                        return


def _readable(wire: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(wire, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _number(line: bytes, key: str) -> int | None:
    try:
        said = json.loads(line)
    except ValueError:
        return None
    number = said.get(key) if isinstance(said, dict) else None
    return number if isinstance(number, int) else None
