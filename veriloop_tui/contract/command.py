"""Runs one command inside a sandbox, to its end or to the first limit that it breaks."""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from veriloop_tui.contract.job import Job, Launch, Limits, Sandbox, Wires
from veriloop_tui.core.excerpt import sanitise
from veriloop_tui.core.ports import Cancel, Clock
from veriloop_tui.errors import Cancelled, SandboxUnavailable

REPORT_NAME = "report"

_TICK = 0.05
_WATCH_EVERY = 0.25
_TAIL_CHARACTERS = 4000
_SURVIVORS_SECONDS = 10.0
_SEE_DOCTOR = "`veriloop doctor` says what is missing."
_SIGNALS = range(129, 129 + 64)


class End(StrEnum):
    """Why a command's run is over."""

    EXITED = "exited"
    TIMEOUT = "timeout"
    OUTPUT_LIMIT = "output-limit"
    MEMORY_LIMIT = "memory-limit"
    PROCESS_LIMIT = "process-limit"
    SURVIVED = "survived"


@dataclass(frozen=True, slots=True)
class Ran:
    """What one command left behind.

    `exit_code` is negative for a signal, and -9 where the run was ended here; `duration` in
    seconds. `digest` is the hex sha256 of the output, standard error mixed in, up to the limit;
    `tail` its sanitised end. `report` is the report file's bytes, `None` without a usable one, and
    then `report_problem` may say why it was refused.
    """

    end: End
    exit_code: int
    duration: float
    digest: str
    tail: str
    report: bytes | None
    report_problem: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where commands run: the stage's root, a fresh host folder for this run, and the way in."""

    root: Path
    folder: Path
    enter: Callable[[Sequence[str]], tuple[str, ...]]


def run_command(
    argv: Callable[[Path], tuple[str, ...]],
    timeout: float,
    place: Place,
    sandbox: Sandbox,
    limits: Limits,
    clock: Clock,
    cancel: Cancel,
) -> Ran:
    """Run to the end, `timeout` seconds at most. When this returns, no process of it is left.

    `argv` makes the command from the path that its report must be written to. Raises `Cancelled`,
    and `SandboxUnavailable` where the command could not be started at all.
    """
    out = place.folder / "out"
    out.mkdir(parents=True)
    command = argv(sandbox.report_folder(out) / REPORT_NAME)
    job = Job(command, place.root, out, place.folder, limits)
    output = place.folder / "output"
    started = clock.monotonic()
    with _wires() as (wires, status, leash):
        try:
            launch = sandbox.wrap(job, wires)
            process = _start(launch, place, output, wires)
        except OSError as error:
            raise SandboxUnavailable(
                sandbox.tier, f"the command could not be started ({error})", _SEE_DOCTOR
            ) from error
        finally:
            os.close(wires.status)
            os.close(wires.leash)
        watched = _Watched(process, launch, status, leash)
        try:
            end = _until_end(watched, output, started + timeout, limits, clock, cancel)
        except BaseException:
            watched.kill()
            raise
        if not (watched.settle() if end is None else watched.kill()):
            end = End.SURVIVED
        reported = watched.exit_code()
    duration = clock.monotonic() - started
    tail = _tail(output)
    if end is None and reported is None:
        raise SandboxUnavailable(
            sandbox.tier,
            f"the command could not be started in it ({tail.strip()[-300:]})",
            _SEE_DOCTOR,
        )
    report, problem = _collect(out, limits.report)
    code = reported if end is None and reported is not None else -signal.SIGKILL
    if code in _SIGNALS:  # the way shells and bubblewrap report a signal
        code = 128 - code
    return Ran(
        end or End.EXITED, code, duration, _digest(output, limits.output), tail, report, problem
    )


def _start(launch: Launch, place: Place, output: Path, wires: Wires) -> subprocess.Popen[bytes]:
    with output.open("xb", buffering=0) as sink:
        return subprocess.Popen(
            place.enter(launch.argv),
            cwd=place.root,
            env=launch.environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(wires.status, wires.leash),
        )


@contextmanager
def _wires() -> Iterator[tuple[Wires, int, _Leash]]:
    status, status_end = os.pipe()
    leash_end, leash = os.pipe()
    os.set_blocking(status, False)
    holder = _Leash(leash)
    try:
        yield Wires(status_end, leash_end), status, holder
    finally:
        holder.let_go()
        os.close(status)


class _Leash:
    """The end of a pipe whose closing tells a supervisor to kill everything."""

    def __init__(self, wire: int) -> None:
        self._wire = wire

    def let_go(self) -> None:
        if self._wire >= 0:
            os.close(self._wire)
            self._wire = -1


class _Watched:
    """A started command: its process, and what came on the status wire so far."""

    def __init__(
        self, process: subprocess.Popen[bytes], launch: Launch, status: int, leash: _Leash
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
        ready, _, _ = select.select([self._ended], [], [], seconds)
        if ready:
            self.process.wait()
        return bool(ready)

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
        ready, _, _ = select.select([self._first], [], [], _SURVIVORS_SECONDS)
        os.close(self._first)
        return bool(ready)

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


def _number(line: bytes, key: str) -> int | None:
    try:
        said = json.loads(line)
    except ValueError:
        return None
    number = said.get(key) if isinstance(said, dict) else None
    return number if isinstance(number, int) else None


def _until_end(
    watched: _Watched, output: Path, deadline: float, limits: Limits, clock: Clock, cancel: Cancel
) -> End | None:
    """`None` once the process has ended by itself, else the limit it broke.

    Raises `Cancelled`.
    """
    next_look = clock.monotonic() + _WATCH_EVERY
    while not watched.wait(_TICK):
        if cancel.is_set():
            raise Cancelled
        now = clock.monotonic()
        if now >= deadline:
            return End.TIMEOUT
        if output.stat().st_size > limits.output:
            return End.OUTPUT_LIMIT
        if now >= next_look:
            if (broken := _too_much(watched.process.pid, limits)) is not None:
                return broken
            next_look = clock.monotonic() + _WATCH_EVERY
    return End.OUTPUT_LIMIT if output.stat().st_size > limits.output else None


def _too_much(pid: int, limits: Limits) -> End | None:
    """The limit that all processes below `pid` break together.

    Looked at from outside, since the kernel's own process limit does not bind root, and its limit
    on address space stops programs that reserve much and use little.
    """
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return None
    if len(below) > limits.processes:
        return End.PROCESS_LIMIT
    used = 0
    for process in below:
        try:
            used += process.memory_info().rss
        except psutil.Error:
            continue
    return End.MEMORY_LIMIT if used > limits.memory else None


def _collect(out: Path, limit: int) -> tuple[bytes | None, str]:
    """The report's bytes, or `None` and why it was refused; nothing is followed or waited for."""
    try:
        wire = _open_report(out)
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"left a report that cannot be opened ({error.strerror})"
    try:
        if not stat.S_ISREG(os.fstat(wire).st_mode):
            return None, "left a report that is no regular file"
        with os.fdopen(os.dup(wire), "rb") as file:
            content = file.read(limit + 1)
    finally:
        os.close(wire)
    if len(content) > limit:
        return None, f"left a report of more than {limit} bytes"
    return content, ""


def _open_report(out: Path) -> int:
    folder = os.open(out, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        return os.open(REPORT_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)


def _digest(output: Path, limit: int) -> str:
    hashed = hashlib.sha256()
    left = limit
    with output.open("rb") as file:
        while left > 0 and (piece := file.read(min(left, 1 << 20))):
            hashed.update(piece)
            left -= len(piece)
    return hashed.hexdigest()


def _tail(output: Path) -> str:
    with output.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4 * _TAIL_CHARACTERS))
        text = file.read(4 * _TAIL_CHARACTERS).decode("utf-8", errors="replace")
    return sanitise(text)[-_TAIL_CHARACTERS:]
