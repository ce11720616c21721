"""Whole studies. The models are scripted: they recite what the test wrote, whatever is asked.

All else is real: llama.cpp in its process, the sandbox, pytest, the controller.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from quant.tasks.record import read_runs
from quant.tasks.study import StudyBegun, StudyEvent, TaskBegun, TaskEnded, TaskStudy
from quant.tasks.suite import Task, choose, read_suite
from quant.tasks.tasks import summarise
from tests.scripted_gguf import write_scripted_gguf
from veriloop_tui.errors import Cancelled, TaskNotRun
from veriloop_tui.wiring.quant_tasks import run_study

TASKS = choose(read_suite(), ("area", "even"))
EVEN = (
    "parity.py\n<<<<<<< SEARCH\n    return number % 2 == 1\n=======\n    return number % 2 == 0\n"
)
AREA = "shapes.py\n<<<<<<< SEARCH\n    return width + height\n=======\n    return width * height\n"
END = ">>>>>>> REPLACE\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The base solves both tasks, the quant one of them."""
    folder = tmp_path_factory.mktemp("models")
    scripts = {"number % 2 == 1": EVEN + END, "width + height": AREA + END}
    base = write_scripted_gguf(folder / "base.gguf", scripts, "I do not know.", 32_768)
    known = {"number % 2 == 1": EVEN + END}
    quant = write_scripted_gguf(folder / "quant.gguf", known, "I do not know.", 32_768)
    return base, quant


def study(models: tuple[Path, ...], results: Path, tasks: tuple[Task, ...] = TASKS) -> TaskStudy:
    return TaskStudy(
        models=models,
        tasks=tasks,
        seeds=(1,),
        results=results,
        attempts=2,
        n_ctx=32_768,
        threads=1,
        edit_format="search-replace",
    )


def of(events: Iterator[StudyEvent]) -> tuple[list[TaskBegun], list[TaskEnded]]:
    told = list(events)
    begun = [event for event in told if isinstance(event, TaskBegun)]
    return begun, [event for event in told if isinstance(event, TaskEnded)]


def test_a_study_is_broken_off_gone_on_with_and_counted(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    results = tmp_path / "runs.jsonl"
    cancel = threading.Event()
    events = run_study(study(models, results), cancel)
    while not (isinstance(event := next(events), TaskBegun) and event.index == 2):
        pass
    cancel.set()
    with pytest.raises(Cancelled):
        list(events)
    assert [run.task for run in read_runs(results)] == ["area"]

    begun, ended = of(run_study(study(models, results), threading.Event()))

    assert [event.index for event in begun] == [2, 3, 4]
    assert {(end.run.model, end.run.task): end.run.solved for end in ended} == {
        ("base.gguf", "area"): True,
        ("base.gguf", "even"): True,
        ("quant.gguf", "area"): False,
        ("quant.gguf", "even"): True,
    }
    runs = tuple(read_runs(results))
    by_model = {run.model: run.model_digest for run in runs}
    base, quant = summarise(runs, by_model["base.gguf"], np.random.default_rng(0))
    assert (base.solved, base.runs, quant.solved) == (2, 2, 1)
    assert base.attempts_per_commit is not None
    assert base.attempts_per_commit.value == 1.0
    assert quant.attempts_per_commit is not None
    assert quant.attempts_per_commit.value == 3.0
    assert quant.retention is not None
    assert (quant.retention.worse, quant.retention.tie) == (1, True)

    # All is known now: no engine is started, and nothing is added.
    first, *rest = run_study(study(models, results), threading.Event())
    assert isinstance(first, StudyBegun)
    assert (first.known, first.of) == (4, 4)
    assert [type(event) for event in rest] == [TaskEnded] * 4
    assert tuple(read_runs(results)) == runs


def test_a_task_that_needs_no_repair_ends_the_study_with_its_name(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    even = TASKS[1]
    mended = {
        name: data.replace(b"% 2 == 1", b"% 2 == 0") if name == "parity.py" else data
        for name, data in even.files
    }
    task = Task("even", tuple(mended.items()))
    with pytest.raises(TaskNotRun, match="its tests pass already"):
        list(run_study(study(models[:1], tmp_path / "r.jsonl", (task,)), threading.Event()))
