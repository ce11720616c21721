"""The terminal app's `Session` on one open workspace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from veriloop_tui.contract.schema import CONTRACT_FILE
from veriloop_tui.contract.trust import is_trusted
from veriloop_tui.core.event import Event
from veriloop_tui.core.ports import Approver, Cancel, SessionFacts
from veriloop_tui.errors import ContractError
from veriloop_tui.store.watch import watch
from veriloop_tui.wiring import running
from veriloop_tui.wiring.workspace import Workspace

QUIET_SECONDS = 0.4
POLL_SECONDS = 5.0


class WorkspaceSession:
    """One workspace, one engine that stays loaded between runs. Close it at the end."""

    def __init__(self, workspace: Workspace, seed: int | None = None) -> None:
        self._workspace, self._seed = workspace, seed
        self._engine = running.Engine(workspace.location)

    def facts(self) -> SessionFacts:
        """What is known without running anything."""
        location = self._workspace.location
        path, trusted = "", False
        names: tuple[str, ...] = ()
        try:
            contract = location.contract()
        except ContractError:
            if (location.root / CONTRACT_FILE).exists():
                path = CONTRACT_FILE
        else:
            path = CONTRACT_FILE
            trusted = is_trusted(location.trust_file, contract)
            names = tuple(obligation.name for obligation in contract.obligations)
        return SessionFacts(
            root=str(location.root),
            model=running.shown_model(location.settings),
            sandbox_tier=location.settings.sandbox,
            staging_rung=self._workspace.rung,
            contract_path=path,
            trusted=trusted,
            obligations=names,
        )

    def verify(self, cancel: Cancel) -> Iterator[Event]:
        """Measure the workspace as it is: notices, then one `IncumbentMeasured`."""
        contract = self._workspace.location.trusted_contract()
        yield from running.verify(self._workspace, contract, cancel)

    def run(self, task: str, approver: Approver, cancel: Cancel) -> Iterator[Event]:
        """One run of the controller, ending with `RunEnded`."""
        contract = self._workspace.location.trusted_contract()
        model = self._engine.model(cancel)
        yield from running.run(self._workspace, contract, model, task, self._seed, approver, cancel)

    def recorded(self) -> tuple[Event, ...]:
        """The events of earlier runs on this workspace, oldest first, without deltas."""
        return self._workspace.ledger.events()

    def watch(self, changed: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `changed` when files may have changed: a hint."""
        return watch(
            self._workspace.location.root,
            changed,
            debounce=QUIET_SECONDS,
            poll_every=POLL_SECONDS,
            notice=self._workspace.notices.append,
        )

    def close(self) -> None:
        """End the engine."""
        self._engine.close()
