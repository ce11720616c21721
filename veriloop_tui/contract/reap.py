"""A small supervisor, run as a script: starts a command and leaves none of its processes behind.

Usage: reap.py STATUS_FD LEASH_FD COMMAND... As a child subreaper it inherits every orphan below
it, daemons in sessions of their own too. When the command has ended, or the leash's other end is
closed, it kills all that is left and reports the command's exit code as a line of JSON. For a
command that enters namespaces and reports by itself, STATUS_FD is `-`. Uses the standard library
alone, since it is started with no site packages.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_KEYCTL_JOIN_SESSION_KEYRING = 1
# The C library has no function for this one; on other machines the keyring stays the user's.
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "armv7l": 311, "i686": 288}
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_KILLING_SECONDS = 2.0


def main(status: int, leash: int, argv: list[str]) -> int:
    """Run `argv` to its end, or the leash's, and report; the exit code of this process."""
    _bring_loopback_up()
    # The right to do so, kept by the namespaces' program, is not the command's.
    ctypes.CDLL(None).prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    os.set_inheritable(status, False)
    code = supervise(leash, argv)
    if code is None:
        return 1
    os.write(status, b'{"exit-code": %d}\n' % code)
    return code if code >= 0 else 128 - code


def supervise(leash: int, argv: list[str]) -> int | None:
    """Run `argv` and end all that it leaves; its exit code, `None` if the leash ended first."""
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(woken)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.set_inheritable(leash, False)
    _leave_keyring()
    child = os.posix_spawnp(argv[0], argv, os.environ)
    code = _wait(child, wake, leash)
    _kill_rest()
    return code


def _leave_keyring() -> None:
    """Take a new session keyring: the user's holds tickets and keys, and no namespace hides it."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        ctypes.CDLL(None).syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None)


def _bring_loopback_up() -> None:
    """Let tests talk to their own servers in a fresh network namespace, where it starts down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked, contextlib.suppress(OSError):
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", fcntl.ioctl(asked, _SIOCGIFFLAGS, request))
        if not flags & _IFF_UP:
            fcntl.ioctl(asked, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _wait(child: int, wake: int, leash: int) -> int | None:
    """The command's exit code, `None` if the leash ended first."""
    while True:
        ready, _, _ = select.select([wake, leash], [], [])
        if leash in ready:
            return None
        os.read(wake, 4096)
        while (ended := _reap()) is not None:
            pid, code = ended
            if pid == child:
                return code


def _reap() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _kill_rest() -> None:
    deadline = time.monotonic() + _KILLING_SECONDS
    while time.monotonic() < deadline:
        below = _below()
        if not below:
            return
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        while _reap() is not None:
            pass
        time.sleep(0.002)


def _below() -> set[int]:
    """Every process whose chain of parents leads here."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    below: set[int] = set()
    grown = {os.getpid()}
    while grown:
        grown = {pid for pid, parent in parents.items() if parent in grown} - below
        below |= grown
    return below


if __name__ == "__main__":
    if sys.argv[1] == "-":
        ended = supervise(int(sys.argv[2]), sys.argv[3:])
        sys.exit(1 if ended is None else ended if ended >= 0 else 128 - ended)
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
