"""Repair tasks run with one quant after the other: engine, sandbox and controller as in any run.

Each run gets a fresh workspace and fresh records, which go away at its end. Nothing but the
model's file differs between the quants: prompts, seeds, sampler and budget are the same.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from quant.tasks.record import RunFile, RunSettings, TaskRun
from quant.tasks.study import (
    StudyBegun,
    StudyEvent,
    TaskBegun,
    TaskEnded,
    TaskNotice,
    TaskStudy,
)
from quant.tasks.suite import Task
from veriloop_tui import __version__
from veriloop_tui.contract.trust import trust
from veriloop_tui.core.chat import Sampling
from veriloop_tui.core.event import Notice, Outcome, RunEnded
from veriloop_tui.core.ports import Cancel
from veriloop_tui.engine.gguf.facts import check_loadable, file_digest, read_facts
from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import Cancelled, TaskNotRun
from veriloop_tui.proposer.propose import DEFAULT_SAMPLING
from veriloop_tui.wiring.running import EveryCommit, Loaded, run
from veriloop_tui.wiring.workspace import Flags, Location, locate, opened, sandbox_of

GOAL = "Make the failing tests pass."


def run_study(study: TaskStudy, cancel: Cancel) -> Iterator[StudyEvent]:
    """Run what is not in the results file yet, and tell all that is.

    Raises `UsageError`, `ModelNotFound`, `ModelFileInvalid`, `EngineError`,
    `SandboxUnavailable`, `TaskNotRun`, `Cancelled`.
    """
    digests = tuple(_digest(model) for model in study.models)
    sampling = _sampling(study)
    settings = _settings(study, sampling)
    wanted = len(study.models) * len(study.tasks) * len(study.seeds)
    with RunFile(study.results) as file:
        known = {run.key: run for run in file.runs}
        plan = [
            (model, digest, task, seed)
            for model, digest in zip(study.models, digests, strict=True)
            for seed in study.seeds
            for task in study.tasks
        ]
        keys = [(task.digest, digest, settings.digest, seed) for _, digest, task, seed in plan]
        yield StudyBegun(wanted, sum(key in known for key in keys), settings.digest, digests)
        for model, digest in zip(study.models, digests, strict=True):
            mine = [
                (index, key, task, seed)
                for index, ((_, of, task, seed), key) in enumerate(zip(plan, keys, strict=True), 1)
                if of == digest
            ]
            yield from (TaskEnded(known[key]) for _, key, _, _ in mine if key in known)
            missing = [one for one in mine if one[1] not in known]
            if not missing:
                continue
            with EngineProcess(_load(study, model)) as process:
                loaded = Loaded(process.client(), sampling)
                yield from (TaskNotice(text) for text in loaded.notices)
                for index, _, task, seed in missing:
                    yield TaskBegun(model.name, task.name, seed, index, wanted)
                    begun = time.monotonic()
                    ended, notices = _run_task(study, loaded, task, seed, cancel)
                    yield from (TaskNotice(text) for text in notices)
                    seconds = time.monotonic() - begun
                    done = _record(ended, model.name, digest, settings, task, seed, seconds)
                    file.append(done)
                    yield TaskEnded(done)


def _run_task(
    study: TaskStudy, loaded: Loaded, task: Task, seed: int, cancel: Cancel
) -> tuple[RunEnded, tuple[str, ...]]:
    """One run in a workspace of its own, with the notices that it gave."""
    notices: list[str] = []
    with tempfile.TemporaryDirectory(prefix="veriloop-task-") as folder:
        root = Path(folder).resolve() / task.name
        root.mkdir()
        task.write(root, sys.executable)
        location = _location(study, root, Path(folder).resolve() / "records")
        contract = location.contract()
        trust(location.trust_file, contract)
        with opened(location) as workspace:
            events = run(workspace, contract, loaded, GOAL, seed, EveryCommit(), cancel)
            for event in events:
                match event:
                    case Notice():
                        notices.append(event.text)
                    case RunEnded():
                        return _whole(event, loaded.facts().path, task.name), tuple(notices)
                    case _:
                        pass
    raise TaskNotRun(task.name, loaded.facts().name, "the run did not end.")


def _whole(ended: RunEnded, model: str, task: str) -> RunEnded:
    """The end of a run that says something about the model."""
    match ended.outcome:
        case Outcome.COMPLETE | Outcome.STALLED | Outcome.BUDGET_SPENT:
            return ended
        case Outcome.STOPPED:
            raise Cancelled
        case Outcome.NOTHING_TO_IMPROVE:
            problem = "its tests pass already."
        case Outcome.ENGINE_FAILED | Outcome.NOT_RANKABLE | Outcome.FAILED:
            problem = ended.detail
    raise TaskNotRun(task, Path(model).name, problem)


def _location(study: TaskStudy, root: Path, data: Path) -> Location:
    flags = Flags(attempts=study.attempts, edit_format=study.edit_format, sandbox=study.sandbox)
    location = locate(root, flags)
    # The user's own records are no place for workspaces that live for a minute.
    settings = replace(location.settings, data_dir=data)
    location = replace(location, settings=settings, data=data)
    sandbox_of(location)
    return location


def _load(study: TaskStudy, model: Path) -> LoadSettings:
    """Plain decoding: what speeds it up may change rounding, and differs between quants."""
    return LoadSettings(
        model,
        n_ctx=study.n_ctx,
        threads=study.threads,
        gpu_layers=study.gpu_layers,
        speculation="off",
        lookup=False,
        parallel=1,
    )


def _sampling(study: TaskStudy) -> Sampling:
    if study.temperature is None:
        return DEFAULT_SAMPLING
    return replace(DEFAULT_SAMPLING, temperature=study.temperature)


def _settings(study: TaskStudy, sampling: Sampling) -> RunSettings:
    return RunSettings(
        attempts=study.attempts,
        n_ctx=study.n_ctx,
        threads=study.threads or 0,
        sampling=tuple((name, str(value)) for name, value in asdict(sampling).items()),
        edit_format=study.edit_format,
        sandbox=study.sandbox,
        program=__version__,
    )


def _digest(model: Path) -> str:
    facts = read_facts(model)
    check_loadable(facts)
    return file_digest(facts)


def _record(
    ended: RunEnded,
    model: str,
    digest: str,
    settings: RunSettings,
    task: Task,
    seed: int,
    seconds: float,
) -> TaskRun:
    # A run that could be measured at all has both ranks.
    assert ended.rank_before is not None
    assert ended.rank_after is not None
    return TaskRun(
        task=task.name,
        task_digest=task.digest,
        model=model,
        model_digest=digest,
        settings=settings.digest,
        seed=seed,
        solved=ended.outcome is Outcome.COMPLETE,
        outcome=ended.outcome.value,
        attempts=ended.attempts,
        commits=ended.commits,
        tokens=ended.spent.tokens,
        rank_before=ended.rank_before,
        rank_after=ended.rank_after,
        seconds=round(seconds, 3),
    )
