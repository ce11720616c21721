"""The commands that make, list and try quants, as a user types them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quant.inspecting.read import read_model
from tests.quant.files import write_base
from tests.scripted_gguf import write_scripted_gguf

ROOT = Path(__file__).parents[3]
CODE = """
import sys, typer
from quant.cli import corpora, inspect, make, tasks
from veriloop_tui.errors import VeriloopError
from veriloop_tui.wiring.quant_tasks import run_study
app = typer.Typer(pretty_exceptions_enable=False)
for module in (corpora, inspect, make):
    module.register(app)
tasks.register(app, run_study)
try:
    app()
except VeriloopError as error:
    sys.stderr.write(str(error))
    sys.exit(error.exit_code)
"""


def quant(*arguments: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CODE, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"COLUMNS": "150", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_quants_are_made_with_their_progress_as_json_lines(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    done = quant("make", base, "--types", "Q8_0", "--threads", "1", "--json")
    assert done.returncode == 0, done.stderr
    plan, *steps, made = map(json.loads, done.stdout.splitlines())
    assert plan["quants"][0]["label"] == "Q8_0"
    assert [step["type"] for step in steps] == ["working"] * steps[0]["of"]
    assert made["type"] == "made"
    assert read_model(Path(made["path"])).facts.file_size == made["size"]
    assert Path(made["path"]).parent == tmp_path


def test_a_dry_run_says_the_sizes_and_makes_nothing(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    done = quant("make", base, "--types", "Q8_0,Q4_K_M", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["planned", "planned"]
    assert [path.name for path in tmp_path.iterdir()] == [base.name]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--types", "Q9"), "no type to make"),
        (("--types", "Q8_0", "--existing", "maybe"), "use one of refuse"),
        (("--types", "Q8_0", "--override", "x"), "no override"),
        (("--types", "Q8_0", "--output-type", "Q4_K_M"), "no tensor type"),
        (("--types", "Q8_0", "--out", "no-such-folder"), "not a folder"),
    ],
)
def test_what_cannot_be_done_as_asked_is_one_sentence(
    tmp_path: Path, options: tuple[str, ...], problem: str
) -> None:
    done = quant("make", write_base(tmp_path), *options, cwd=tmp_path)
    assert done.returncode == 2
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


def test_the_corpora_are_listed_with_where_they_are_to_be_had() -> None:
    listed = json.loads(quant("corpora", "--json").stdout)
    assert [name for name, _, _ in listed["shipped"]] == ["prose", "code", "chat"]
    text = quant("corpora").stdout
    assert all(recipe["repo"] in text and recipe["licence"] in text for recipe in listed["recipes"])


def test_a_model_without_a_useful_answer_solves_nothing_and_the_table_says_so(
    tmp_path: Path,
) -> None:
    model = write_scripted_gguf(tmp_path / "m.gguf", {}, "I do not know.", 32_768)
    options = ("--task", "even", "--attempts", "1", "--n-ctx", "32768", "--threads", "1")
    results = ("--results", tmp_path / "runs.jsonl")
    done = quant("tasks", model, *options, *results)
    assert done.returncode == 0, done.stderr
    assert "0/1" in done.stdout
    assert "no commit" in done.stdout
    again = quant("tasks", model, *options, *results, "--json")
    last = json.loads(again.stdout.splitlines()[-1])
    assert last["type"] == "summary"
    assert (last["models"][0]["runs"], last["models"][0]["solved"]) == (1, 0)


def test_a_model_named_twice_is_refused(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    done = quant("tasks", base, tmp_path / "." / base.name, cwd=tmp_path)
    assert done.returncode == 2
    assert "named twice" in done.stderr
