"""Runs: the engine, the proposer and the controller put together for one workspace."""

from __future__ import annotations

import platform
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from veriloop_tui import __version__, registry
from veriloop_tui.config import NO_DRAFT, Settings
from veriloop_tui.contract.protect import protects
from veriloop_tui.core.chat import ChatEvent, ChatRequest, ModelFacts, Sampling
from veriloop_tui.core.event import Event, IncumbentMeasured, Notice
from veriloop_tui.core.obligation import Contract
from veriloop_tui.core.ports import Approval, Approver, Cancel, ChatModel
from veriloop_tui.core.transition import Transition
from veriloop_tui.engine.client.address import parse_address
from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.loop.controller import Controller
from veriloop_tui.loop.incumbent import measure_incumbent
from veriloop_tui.loop.plan import Parts, Plan
from veriloop_tui.proposer.propose import DEFAULT_SAMPLING, ModelProposer
from veriloop_tui.wiring import servers
from veriloop_tui.wiring.loading import load_settings
from veriloop_tui.wiring.workspace import Location, Workspace

CONTEXT_FILE = "context.bin"

Ask = Callable[[str, tuple[str, ...]], tuple[bool, str]]


class Loaded:
    """A loaded model whose facts are asked for once, and how to sample from it.

    `notices` are what its engine or server has to tell.
    """

    def __init__(self, model: ChatModel, sampling: Sampling) -> None:
        facts = model.facts()
        self._model, self.sampling, self.notices = model, sampling, facts.notices
        # Told by themselves: a bundle binds the model, not how this machine runs it today.
        self._facts = replace(facts, notices=())

    def facts(self) -> ModelFacts:
        """What is known of the model."""
        return self._facts

    def complete(self, request: ChatRequest, cancel: Cancel) -> Iterator[ChatEvent]:
        """The model's answer. Raises `EngineError`."""
        return self._model.complete(request, cancel)


class Engine:
    """The model side of a workspace: a process of our own, or another server. Close it."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._process: EngineProcess | None = None

    def model(self, cancel: Cancel) -> Loaded:
        """The model, ready to answer: loaded, loaded again after a crash, or probed.

        Raises `ModelNotFound`, `ServerNotAllowed`, `UsageError`, `EngineError`, `Cancelled`.
        """
        settings = self._location.settings
        if settings.server:
            served = servers.ask(settings, cancel)
            spec = _served_spec(served.probe.facts.name)
            return Loaded(served, sampling(settings, spec))
        if self._process is None:
            load = engine_settings(self._location)
            kept = self._location.data / CONTEXT_FILE
            self._process = EngineProcess(replace(load, state_file=kept))
        if self._process.crash() is not None:
            self._process.restart(cancel)
        spec = local_model(self._location).spec
        return Loaded(self._process.client(), sampling(settings, spec))

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.stop()


class EveryCommit:
    """Lets every verified candidate through, as `--auto` says."""

    def approve(self, transition: Transition, diff: str, warnings: tuple[str, ...]) -> Approval:
        """Yes."""
        return Approval(True)


class AskFirst:
    """Asks a function; it gets the diff and the warnings, and gives an answer and a reason."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def approve(self, transition: Transition, diff: str, warnings: tuple[str, ...]) -> Approval:
        """What the function says."""
        approved, reason = self._ask(diff, warnings)
        return Approval(approved, reason)


def shown_model(settings: Settings) -> str:
    """The model as the user named it."""
    if not settings.server:
        return settings.model
    return f"{settings.server_model or 'the model'} at {parse_address(settings.server).origin}"


def local_model(location: Location) -> registry.LocalModel:
    """The model that the settings name. Raises `ModelNotFound`."""
    return registry.resolve(location.settings.model, _known())


def draft_file(location: Location) -> Path | None:
    """The file with the draft head to load, if there is one. Raises `ModelNotFound`."""
    ref = location.settings.draft
    if ref == NO_DRAFT:
        return None
    return registry.draft_of(local_model(location), ref, _known())


def engine_settings(location: Location) -> LoadSettings:
    """How to load the model that the settings name. Raises `ModelNotFound`."""
    load = load_settings(location.settings)
    return replace(load, model=local_model(location).path, draft=draft_file(location))


@contextmanager
def engine(location: Location, cancel: Cancel) -> Iterator[Loaded]:
    """The model that the settings name, ready to answer. Raises what `Engine.model` raises."""
    with closing(Engine(location)) as started:
        yield started.model(cancel)


def sampling(settings: Settings, spec: registry.ModelSpec | None) -> Sampling:
    """The proposer's sampling, then the registry's for this model, then the user's."""
    chosen = DEFAULT_SAMPLING
    if spec is not None:
        chosen = replace(chosen, **spec.sampling.model_dump(exclude_none=True))
    if settings.temperature is not None:
        chosen = replace(chosen, temperature=settings.temperature)
    return chosen


def _served_spec(name: str) -> registry.ModelSpec | None:
    """What the registry knows of a model that another server calls `name`."""
    specs = _known().values()
    return next((one for one in specs if name in (one.name, one.weights, one.repo)), None)


def _known() -> Mapping[str, registry.ModelSpec]:
    return registry.read_registry(registry.registry_file())


def verify(workspace: Workspace, contract: Contract, cancel: Cancel) -> Iterator[Event]:
    """Measure the workspace as it is: notices, then one `IncumbentMeasured`."""
    verifier = workspace.verifier(contract)
    yield from (Notice(text=text) for text in workspace.told())
    incumbent = measure_incumbent(contract, workspace.snapshots, verifier, cancel)
    yield IncumbentMeasured(
        snapshot=incumbent.snapshot,
        total=incumbent.rank.total,
        obligations=incumbent.statuses(contract),
        epoch=1,
    )


def run(
    workspace: Workspace,
    contract: Contract,
    model: Loaded,
    task: str,
    seed: int | None,
    approver: Approver,
    cancel: Cancel,
) -> Iterator[Event]:
    """One run of the controller; degraded modes are told and recorded as they come up."""
    location = workspace.location
    settings, budget = location.settings, contract.budget
    if settings.attempts is not None:
        budget = replace(budget, attempts=settings.attempts)
    protected = partial(protects, contract)
    name = secrets.token_hex(8)
    plan = Plan(
        run=name,
        task=task,
        contract=contract,
        budget=budget,
        protects=protected,
        seed=secrets.randbits(31) if seed is None else seed,
        program_version=__version__,
        platform=describe_platform(),
    )
    parts = Parts(
        model=model.facts(),
        snapshots=workspace.snapshots,
        verifier=workspace.verifier(contract),
        promoter=workspace.promoter,
        proposer=ModelProposer(
            model, workspace.snapshots, protected, settings.edit_format, model.sampling
        ),
        ledger=workspace.ledger,
        approver=approver,
        clock=workspace.clock,
        stored_bytes=workspace.snapshots.stored_bytes,
    )
    workspace.notices += model.notices
    for event in Controller(plan, parts, cancel).events():
        yield event
        for text in workspace.told():
            notice = Notice(text=text)
            workspace.ledger.append(name, notice)
            yield notice


def describe_platform() -> str:
    """The machine and Python that ran it, without the host's name."""
    return f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
