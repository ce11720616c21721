"""The only place that joins the parts: what the command line can ask for, one function each.

Nothing here prints. Each function raises `VeriloopError`s, and loads the terminal app or
llama.cpp only where it is about to use them.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from veriloop_tui.config import Sandbox, load_settings, user_file
from veriloop_tui.contract.detect import detect, render_contract
from veriloop_tui.contract.schema import CONTRACT_FILE, parse_contract
from veriloop_tui.contract.trust import changes, is_trusted
from veriloop_tui.contract.trust import trust as keep_trust
from veriloop_tui.core.bundle import CertifiedBundle
from veriloop_tui.core.event import Event, RolledBack, RunEnded
from veriloop_tui.core.obligation import Contract
from veriloop_tui.core.ports import Approver, Cancel
from veriloop_tui.errors import SandboxUnavailable, UsageError
from veriloop_tui.ledger.fsck import Damage
from veriloop_tui.wiring import machine, records, running, servers
from veriloop_tui.wiring.workspace import Flags, Location, locate, opened, sandbox_of

__all__ = ["Flags"]

DEMO_MODEL = "smollm2"
DEMO_TASK = "Make the failing tests pass."
SANDBOX_LADDER: tuple[Sandbox, ...] = ("best", "reduced", "none")


@dataclass(frozen=True, slots=True)
class Written:
    """A contract that `init` wrote, and what it was concluded from."""

    path: Path
    text: str
    found: tuple[str, ...]
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrustQuestion:
    """What the user is to read before trusting a contract; `contract` is what they read."""

    contract: Contract
    trusted: bool
    lines: tuple[str, ...]


def init(workspace: Path, search_path: str, *, force: bool) -> Written:
    """Detect the test command, write `veriloop.toml` and trust it.

    Raises `UsageError` where nothing is found or a contract is there already.
    """
    location = locate(workspace)
    path = location.root / CONTRACT_FILE
    if path.exists() and not force:
        raise UsageError(f"{path} exists already; edit it, or pass --force to replace it.")
    detected = detect(location.root, search_path)
    if detected is None:
        raise UsageError(
            f"No pytest suite was found in {location.root}; write {CONTRACT_FILE} by hand "
            "(docs/architecture.md shows one)."
        )
    text = render_contract(detected)
    contract = parse_contract(text.encode())
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"{path} cannot be written: {problem.strerror}.") from problem
    keep_trust(location.trust_file, contract)
    return Written(path, text, detected.found, detected.notices)


def trust_question(workspace: Path) -> TrustQuestion:
    """What `trust` has to show. Raises `ContractError`."""
    location = locate(workspace)
    contract = location.contract()
    file = location.trust_file
    return TrustQuestion(contract, is_trusted(file, contract), changes(file, contract))


def trust(workspace: Path, question: TrustQuestion) -> None:
    """Trust exactly what was shown, whatever the file says by now."""
    keep_trust(locate(workspace).trust_file, question.contract)


def server_question(url: str) -> servers.ServerQuestion:
    """What `trust --server` has to show. Raises `UsageError`."""
    return servers.question(_data_dir(), url)


def allow_server(url: str) -> None:
    """Let the text of workspaces go to this server from now on. Raises `UsageError`."""
    servers.allow(_data_dir(), url)


def _data_dir() -> Path:
    return load_settings({}, os.environ, None, user_file()).data_dir


def verify(workspace: Path, flags: Flags, cancel: Cancel) -> Iterator[Event]:
    """Rank the workspace as it is: notices, then `IncumbentMeasured`."""
    location = locate(workspace, flags)
    contract = location.trusted_contract()
    with opened(location) as open_workspace:
        yield from running.verify(open_workspace, contract, cancel)


def run(
    workspace: Path,
    task: str,
    flags: Flags,
    seed: int | None,
    ask: running.Ask | None,
    cancel: Cancel,
) -> Iterator[Event]:
    """One run; without `ask` every verified candidate is committed."""
    approver: Approver = running.EveryCommit() if ask is None else running.AskFirst(ask)
    yield from _run(locate(workspace, flags), task, seed, approver, cancel)


def _run(
    location: Location,
    task: str,
    seed: int | None,
    approver: Approver,
    cancel: Cancel,
    notices: tuple[str, ...] = (),
) -> Iterator[Event]:
    contract = location.trusted_contract()
    with opened(location) as workspace, running.engine(location, cancel) as model:
        workspace.notices += notices
        yield from running.run(workspace, contract, model, task, seed, approver, cancel)


def open_terminal(workspace: Path, flags: Flags) -> RunEnded | None:
    """The terminal app; the last run's end, if there was one."""
    from veriloop_tui.wiring import screen

    return screen.show(locate(workspace, flags))


@contextmanager
def demo_workspace(folder: Path | None) -> Iterator[Path]:
    """A fresh demo workspace in `folder`, or in a temporary one that goes away at the end."""
    from veriloop_tui.demo import write_demo

    if folder is not None:
        write_demo(folder, sys.executable)
        yield folder.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="veriloop-demo-") as temporary:
        place = Path(temporary).resolve() / "demo"
        write_demo(place, sys.executable)
        yield place


def _demo_location(workspace: Path, flags: Flags) -> tuple[Location, tuple[str, ...]]:
    """The demo's location, and a sentence where it has to do with less isolation.

    Only the demo may fall back by itself, since its folder was made for it.
    """
    location = locate(workspace, replace(flags, model=flags.model or DEMO_MODEL))
    keep_trust(location.trust_file, location.contract())
    notices: tuple[str, ...] = ()
    for tier in SANDBOX_LADDER:
        tried = replace(location, settings=replace(location.settings, sandbox=tier))
        try:
            sandbox_of(tried)
        except SandboxUnavailable as missing:
            notices = (f"The demo runs with less isolation. {missing}",)
        else:
            return tried, notices
    raise UsageError("No way to run commands was found here; see `veriloop doctor`.")


def run_demo(workspace: Path, flags: Flags, seed: int | None, cancel: Cancel) -> Iterator[Event]:
    """The demo without a screen."""
    location, notices = _demo_location(workspace, flags)
    yield from _run(location, DEMO_TASK, seed, running.EveryCommit(), cancel, notices)


def show_demo(workspace: Path, flags: Flags, seed: int | None) -> RunEnded | None:
    """The demo in the terminal app."""
    from veriloop_tui.wiring import screen

    location, notices = _demo_location(workspace, flags)
    return screen.show_run(location, DEMO_TASK, seed, notices)


def serve(flags: Flags, socket: Path | None, host: str, port: int, api_key: str) -> None:
    """The engine by itself, until a signal ends it. Raises `ModelNotFound`, `EngineError`."""
    from veriloop_tui.wiring import serving

    location = locate(Path(), flags)
    serving.serve(running.engine_settings(location), socket, host, port, api_key)


def history(workspace: Path) -> tuple[records.HistoryRow, ...]:
    """What was recorded of runs, oldest first."""
    return records.history(locate(workspace))


def ledger_head(workspace: Path) -> str:
    """The hash of the ledger's last row."""
    return records.ledger_head(locate(workspace))


def bundle(workspace: Path, ident: str) -> CertifiedBundle:
    """One bundle. Raises `SnapshotNotFound`."""
    return records.bundle(locate(workspace), ident)


def diff(workspace: Path, old: str, new: str) -> records.Difference:
    """What differs between two bundles. Raises `SnapshotNotFound`."""
    return records.diff(locate(workspace), old, new)


def rollback(
    workspace: Path,
    ident: str,
    confirmed: Callable[[tuple[str, ...], tuple[str, ...]], bool],
) -> RolledBack | None:
    """Go back to a bundle, if confirmed. Raises `SnapshotNotFound`, `UsageError`, `StaleBase`."""
    with opened(locate(workspace)) as open_workspace:
        return records.rollback(open_workspace, ident, confirmed)


def fsck(workspace: Path, head: str) -> tuple[Damage, ...]:
    """Every damaged place; empty if all is as it was written."""
    return records.fsck(locate(workspace), head)


def doctor(workspace: Path) -> Iterator[machine.Finding]:
    """What this machine offers, one finding after the other."""
    return machine.examine(locate(workspace))
