"""Chooses the isolation tier that was asked for, by trying it; never another one in its place."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import assert_never

from veriloop_tui.contract.bubblewrap import BubblewrapSandbox, hidden_folders
from veriloop_tui.contract.command import End, Place, Ran, run_command
from veriloop_tui.contract.job import Limits, Sandbox, Tier
from veriloop_tui.contract.supervised import SupervisedSandbox, namespaces
from veriloop_tui.contract.toolchain import toolchains
from veriloop_tui.core.ports import Clock
from veriloop_tui.errors import SandboxUnavailable

_PROBE_TIMEOUT = 20.0
_INSTALL = "Install bubblewrap 0.8 or newer (Debian, Ubuntu: `apt install bubblewrap`)"
_OR_LESS = "or choose `--sandbox reduced` and read what it does not stop."

_ALWAYS_OPEN = (
    "Commands can read your files, your keys too, and write outside the staging area, "
    "the live workspace included."
)


@dataclass(frozen=True, slots=True)
class Host:
    """What is known of the user's account. `path` is their PATH, as it was at the start.

    `private` are folders that no command may see (the program's data), `prefixes` installations
    whose programs commands need, `readable` further folders that the user lets them read.
    `system` is where the sandbox's own programs are looked for.
    """

    path: str
    home: Path
    private: tuple[Path, ...]
    prefixes: tuple[Path, ...] = field(default=(Path(sys.prefix), Path(sys.base_prefix)))
    readable: tuple[Path, ...] = ()
    system: str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def choose_sandbox(wanted: Tier, host: Host, clock: Clock) -> Sandbox:
    """The tier that was asked for, tried once. Raises `SandboxUnavailable`."""
    prlimit = shutil.which("prlimit", path=host.system)
    if prlimit is None:
        raise SandboxUnavailable(
            wanted, "the program 'prlimit' is not installed", "Install the package util-linux."
        )
    match wanted:
        case "best":
            return _best(host, prlimit, clock)
        case "reduced":
            return _reduced(host, prlimit, clock)
        case "none":
            return SupervisedSandbox(
                "none",
                (f"No isolation: {_ALWAYS_OPEN} They can use the network.",),
                prlimit,
                host.path,
            )
        case _:
            assert_never(wanted)


def _best(host: Host, prlimit: str, clock: Clock) -> Sandbox:
    bwrap = shutil.which("bwrap", path=host.system)
    if bwrap is None:
        raise SandboxUnavailable("best", "bubblewrap is not installed", f"{_INSTALL}, {_OR_LESS}")
    if not _knows(bwrap, ("--disable-userns", "--size", "--json-status-fd")):
        raise SandboxUnavailable("best", "bubblewrap is too old", f"{_INSTALL}, {_OR_LESS}")
    home = host.home.resolve()
    private = _real((*host.private, home / ".ssh", home / ".gnupg"))
    hidden = hidden_folders(home, private)
    shown = toolchains(host.path, host.prefixes, home, hidden, private)
    readable = tuple(place for place in host.readable if os.access(place, os.F_OK))
    sandbox = BubblewrapSandbox(
        bwrap, prlimit, host.path, home, hidden, private, (*shown, *readable)
    )
    ran = _try(sandbox, clock)
    if isinstance(ran, SandboxUnavailable):
        raise SandboxUnavailable(
            "best",
            f"bubblewrap does not work here: {ran.problem}",
            f"Allow unprivileged user namespaces, {_OR_LESS}",
        )
    return sandbox


def _reduced(host: Host, prlimit: str, clock: Clock) -> Sandbox:
    plain = SupervisedSandbox(
        "reduced",
        (f"Reduced isolation, without namespaces: {_ALWAYS_OPEN} They can use the network.",),
        prlimit,
        host.path,
    )
    unshare = shutil.which("unshare", path=host.system)
    if unshare is None:
        return plain
    apart = replace(
        plain,
        notices=(f"Reduced isolation, without bubblewrap: {_ALWAYS_OPEN}",),
        unshare=namespaces(unshare),
    )
    return plain if isinstance(_try(apart, clock), SandboxUnavailable) else apart


def _real(folders: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(folder.resolve() for folder in folders)


def _knows(bwrap: str, options: tuple[str, ...]) -> bool:
    said = subprocess.run((bwrap, "--help"), capture_output=True, text=True, check=False)
    return all(option in said.stdout + said.stderr for option in options)


def _try(sandbox: Sandbox, clock: Clock) -> Ran | SandboxUnavailable:
    with tempfile.TemporaryDirectory(prefix="veriloop-probe-") as folder:
        root = Path(folder).resolve() / "root"
        root.mkdir()
        place = Place(root, root.parent / "run", tuple)
        try:
            ran = run_command(
                lambda _report: ("/bin/sh", "-c", "echo x >written"),
                _PROBE_TIMEOUT,
                place,
                sandbox,
                Limits(),
                clock,
                threading.Event(),
            )
        except SandboxUnavailable as error:
            return error
        if ran.end is End.EXITED and ran.exit_code == 0 and (root / "written").exists():
            return ran
        return SandboxUnavailable(sandbox.tier, f"a trial run failed ({ran.tail.strip()})", "")
