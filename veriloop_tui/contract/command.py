"""Runs one command inside a sandbox, to its end or to the first limit that it breaks."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from veriloop_tui.contract.job import Job, Launch, Limits, Sandbox, Wires
from veriloop_tui.contract.leftover import (
    REPORT_NAME,
    collect_report,
    output_digest,
    output_tail,
)
from veriloop_tui.contract.watched import Watched, open_wires
from veriloop_tui.core.ports import Cancel, Clock
from veriloop_tui.errors import Cancelled, SandboxUnavailable

_TICK = 0.05
_WATCH_EVERY = 0.25
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
    with open_wires() as (wires, status, leash):
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
        watched = Watched(process, launch, status, leash)
        try:
            end = _until_end(watched, output, started + timeout, limits, clock, cancel)
        except BaseException:
            watched.kill()
            raise
        if not (watched.settle() if end is None else watched.kill()):
            end = End.SURVIVED
        reported = watched.exit_code()
    duration = clock.monotonic() - started
    tail = output_tail(output)
    if end is None and reported is None:
        raise SandboxUnavailable(
            sandbox.tier,
            f"the command could not be started in it ({tail.strip()[-300:]})",
            _SEE_DOCTOR,
        )
    report, problem = collect_report(out, limits.report)
    code = reported if end is None and reported is not None else -signal.SIGKILL
    if code in _SIGNALS:  # the way shells and bubblewrap report a signal
        code = 128 - code
    return Ran(
        end or End.EXITED,
        code,
        duration,
        output_digest(output, limits.output),
        tail,
        report,
        problem,
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


def _until_end(
    watched: Watched, output: Path, deadline: float, limits: Limits, clock: Clock, cancel: Cancel
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
