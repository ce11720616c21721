from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quant.tasks.record import RunFile, RunSettings, TaskRun, read_runs
from tests.quant.tasks.test_tasks import RUN
from veriloop_tui.errors import UsageError

SETTINGS = RunSettings(
    attempts=16,
    n_ctx=4096,
    threads=2,
    sampling=(("temperature", "0.7"),),
    edit_format="auto",
    sandbox="best",
    program="1.0",
)


def written(path: Path, *runs: TaskRun) -> None:
    with RunFile(path) as file:
        for run in runs:
            file.append(run)


def test_runs_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    written(path, RUN)
    written(path, replace(RUN, seed=2))
    assert list(read_runs(path)) == [RUN, replace(RUN, seed=2)]


@given(st.integers(0, 400))
def test_a_file_cut_anywhere_keeps_its_whole_runs_and_can_be_gone_on_with(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "runs.jsonl"
    written(path, RUN)
    line = path.read_bytes()
    written(path, replace(RUN, seed=2))
    path.write_bytes(path.read_bytes()[: len(line) + cut])
    whole = [RUN] if cut < len(line) else [RUN, replace(RUN, seed=2)]

    with RunFile(path) as file:
        assert list(file.runs) == whole
        file.append(replace(RUN, seed=3))

    assert list(read_runs(path)) == [*whole, replace(RUN, seed=3)]


@pytest.mark.parametrize(
    "line", ["{}", "[]", "nonsense", '{"task": 1}', RUN.__class__.__name__, "[" * 100_000]
)
def test_a_file_of_something_else_is_refused_and_stays(tmp_path: Path, line: str) -> None:
    path = tmp_path / "other.txt"
    path.write_text(line + "\n")
    with pytest.raises(UsageError, match="no record of a task"), RunFile(path):
        pass
    assert path.read_text() == line + "\n"


def test_a_value_of_another_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    written(path, RUN)
    path.write_text(path.read_text().replace('"attempts": 2', '"attempts": "2"'))
    with pytest.raises(UsageError, match="'attempts' has a wrong value"):
        list(read_runs(path))


def test_every_setting_is_part_of_the_digest() -> None:
    others = [
        replace(SETTINGS, attempts=8),
        replace(SETTINGS, n_ctx=2048),
        replace(SETTINGS, threads=1),
        replace(SETTINGS, sampling=(("temperature", "0.8"),)),
        replace(SETTINGS, edit_format="file"),
        replace(SETTINGS, sandbox="reduced"),
        replace(SETTINGS, program="1.1"),
    ]
    assert len({one.digest for one in (SETTINGS, *others)}) == len(others) + 1
