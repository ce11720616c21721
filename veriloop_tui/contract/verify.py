"""Runs a contract in a staging copy and reads what it showed."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import assert_never

from veriloop_tui.contract.command import End, Place, Ran, run_command
from veriloop_tui.contract.job import Limits, Sandbox, Tier
from veriloop_tui.contract.report import read_report
from veriloop_tui.contract.unreadable import Unreadable
from veriloop_tui.core.obligation import (
    CheckOutcome,
    CommandRecord,
    Measurement,
    Obligation,
    Ranked,
    Unrankable,
)
from veriloop_tui.core.ports import Cancel, Clock, Stage, Stager
from veriloop_tui.core.snapshot import Change
from veriloop_tui.errors import StagingUnavailable, StaleBase

_NOT_STARTED = {126: "is not executable", 127: "was not found"}
_PLACEHOLDER = "{report}"


@dataclass(frozen=True, slots=True)
class ContractVerifier:
    """The `Verifier` of one contract on one workspace.

    `seen` tells what the last look at the live workspace found, `look_again` what another look
    finds; the same value as long as nothing moved. A run during which something moved is void,
    because the live files shine through an overlay.
    """

    obligations: tuple[Obligation, ...]
    stager: Stager
    sandbox: Sandbox
    seen: Callable[[], object]
    look_again: Callable[[], object]
    clock: Clock
    limits: Limits = field(default_factory=Limits)

    @property
    def sandbox_tier(self) -> Tier:
        """The isolation tier in use."""
        return self.sandbox.tier

    @property
    def staging_rung(self) -> str:
        """The rung of the staging ladder in use."""
        return self.stager.rung

    def measure(
        self, changes: tuple[Change, ...], only: frozenset[str] | None, cancel: Cancel
    ) -> Measurement:
        """One run of the obligations, in order, on workspace plus changes.

        Raises `Cancelled`, `StaleBase`, `SandboxUnavailable`, `StagingUnavailable`,
        `InvalidEdit`.
        """
        wanted = tuple(o for o in self.obligations if only is None or o.name in only)
        if not wanted:
            raise ValueError(f"no obligation of the contract is among {only}")
        before = self.seen()
        try:
            measured = self._run(wanted, changes, cancel)
        except StagingUnavailable:
            if self.look_again() == before:
                raise
        else:
            if self.look_again() == before:
                return measured
        raise StaleBase(())

    def _run(
        self, wanted: tuple[Obligation, ...], changes: tuple[Change, ...], cancel: Cancel
    ) -> Measurement:
        outcomes: list[CheckOutcome] = []
        records: list[CommandRecord] = []
        with self.stager.stage(changes) as stage:
            for number, obligation in zip(count(1), wanted, strict=False):
                ran = self._command(obligation, stage, stage.scratch / f"run-{number}", cancel)
                try:
                    read = _outcomes(obligation, ran)
                except Unreadable as error:
                    records.append(_record(obligation, ran, ()))
                    return Unrankable(obligation.name, error.reason, tuple(records))
                records.append(_record(obligation, ran, read))
                outcomes.extend(read)
        covered = frozenset(obligation.name for obligation in wanted)
        return Ranked((tuple(outcomes),), (covered,), tuple(records))

    def _command(self, obligation: Obligation, stage: Stage, folder: Path, cancel: Cancel) -> Ran:
        return run_command(
            lambda report: _with_report(obligation, str(report)),
            obligation.timeout,
            Place(stage.root, folder, stage.enter),
            self.sandbox,
            self.limits,
            self.clock,
            cancel,
        )


def _argv(obligation: Obligation) -> tuple[str, ...]:
    if isinstance(obligation.run, str):
        return ("/bin/sh", "-c", obligation.run)
    return obligation.run


def _with_report(obligation: Obligation, report: str) -> tuple[str, ...]:
    if isinstance(obligation.run, str):
        report = shlex.quote(report)
    return tuple(part.replace(_PLACEHOLDER, report) for part in _argv(obligation))


def _record(obligation: Obligation, ran: Ran, read: tuple[CheckOutcome, ...]) -> CommandRecord:
    return CommandRecord(
        obligation.name,
        _argv(obligation),
        ran.exit_code,
        ran.duration,
        ran.digest,
        ran.tail,
        read,
    )


def _outcomes(obligation: Obligation, ran: Ran) -> tuple[CheckOutcome, ...]:
    """The checks of a run that came to its own end. Raises `Unreadable` for any other."""
    match ran.end:
        case End.EXITED:
            pass
        case End.TIMEOUT:
            raise Unreadable(f"did not end within {obligation.timeout:g} s")
        case End.OUTPUT_LIMIT:
            raise Unreadable("wrote more output than the limit allows")
        case End.MEMORY_LIMIT:
            raise Unreadable("used more memory than the limit allows")
        case End.PROCESS_LIMIT:
            raise Unreadable("started more processes than the limit allows")
        case End.SURVIVED:
            raise Unreadable("left processes that could not be ended")
        case _:
            assert_never(ran.end)
    if ran.exit_code < 0:
        raise Unreadable(f"was killed by signal {-ran.exit_code}")
    if (problem := _NOT_STARTED.get(ran.exit_code)) is not None:
        raise Unreadable(f"could not start: its command {problem} in the sandbox")
    if ran.report_problem:
        raise Unreadable(ran.report_problem)
    return read_report(obligation.report, ran.report, ran.exit_code, obligation.name, ran.tail)
