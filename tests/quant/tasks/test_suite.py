import subprocess
import sys
from pathlib import Path

import pytest

from quant.tasks.suite import CONTRACT_FILE, SHIPPED_SUITE, Task, choose, read_suite
from tests.quant.solutions import SOLUTIONS
from veriloop_tui.contract.schema import load_contract
from veriloop_tui.errors import UsageError

TASKS = read_suite()
BROKEN = b"def f():\n    return 1\n"


def suite(folder: Path, contract: bool = True) -> Path:
    (folder / "one").mkdir(parents=True)
    (folder / "one" / "f.py").write_bytes(BROKEN)
    if contract:
        (folder / CONTRACT_FILE).write_bytes(b'run = ["python3"]\n')
    return folder


def solved(task: Task, folder: Path) -> None:
    """Apply the solution's edits, each of which must have exactly one place."""
    modules = [path for path in folder.glob("*.py") if not path.name.startswith("test_")]
    for old, new in SOLUTIONS[task.name]:
        (module,) = [path for path in modules if path.read_text().count(old) == 1]
        module.write_text(module.read_text().replace(old, new))


def failures(folders: list[Path]) -> dict[str, bool]:
    """Whether the tests of each folder fail, in one pytest process for all of them."""
    code = (
        "import sys, pytest\n"
        "for folder in sys.argv[1:]:\n"
        "    before = set(sys.modules)\n"
        "    sys.path.insert(0, folder)\n"
        "    code = pytest.main(['-q', '-p', 'no:cacheprovider', folder], plugins=[])\n"
        "    sys.path.remove(folder)\n"
        "    for name in set(sys.modules) - before:\n"
        "        if getattr(sys.modules[name], '__file__', '') and folder in str(\n"
        "            sys.modules[name].__file__):\n"
        "            del sys.modules[name]\n"
        "    print('RESULT', folder, int(code))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, folders)], capture_output=True, text=True, check=True
    )
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("RESULT")]
    codes = {Path(folder).name: int(code) for _, folder, code in lines}
    assert set(codes.values()) <= {0, 1}, done.stdout[-2000:]
    return {name: code == 1 for name, code in codes.items()}


def test_there_are_enough_tasks() -> None:
    assert len(TASKS) >= 20
    assert {task.name for task in TASKS} == SOLUTIONS.keys()


def test_every_task_fails_as_it_is_and_can_be_solved(tmp_path: Path) -> None:
    for task in TASKS:
        for state in ("broken", "mended"):
            folder = tmp_path / state / task.name
            folder.mkdir(parents=True)
            task.write(folder, sys.executable)
            load_contract(folder)
            if state == "mended":
                solved(task, folder)
    broken = failures([tmp_path / "broken" / task.name for task in TASKS])
    mended = failures([tmp_path / "mended" / task.name for task in TASKS])
    assert [name for name, fails in broken.items() if not fails] == []
    assert [name for name, fails in mended.items() if fails] == []


def test_the_contract_runs_the_interpreter_that_it_is_given(tmp_path: Path) -> None:
    (task,) = read_suite(suite(tmp_path / "suite"))
    out = tmp_path / "out"
    out.mkdir()
    task.write(out, '/opt/py "3"/python')
    assert (out / CONTRACT_FILE).read_text() == 'run = ["/opt/py \\"3\\"/python"]\n'
    assert (out / "f.py").read_bytes() == BROKEN


def test_a_task_s_own_contract_goes_before_the_suite_s(tmp_path: Path) -> None:
    folder = suite(tmp_path / "suite")
    (folder / "one" / CONTRACT_FILE).write_bytes(b"own")
    (task,) = read_suite(folder)
    assert dict(task.files)[CONTRACT_FILE] == b"own"


def test_one_changed_byte_makes_another_task(tmp_path: Path) -> None:
    folder = suite(tmp_path / "suite")
    (before,) = read_suite(folder)
    (folder / "one" / "f.py").write_bytes(BROKEN + b"#")
    (after,) = read_suite(folder)
    assert before.digest != after.digest


def test_what_python_leaves_behind_is_no_part_of_a_task(tmp_path: Path) -> None:
    folder = suite(tmp_path / "suite")
    (before,) = read_suite(folder)
    (folder / "one" / "__pycache__").mkdir()
    (folder / "one" / "__pycache__" / "f.pyc").write_bytes(b"x")
    assert read_suite(folder) == (before,)


def test_what_is_no_suite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a folder"):
        read_suite(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no tasks"):
        read_suite(tmp_path / "empty")
    with pytest.raises(UsageError, match="has no veriloop"):
        read_suite(suite(tmp_path / "bare", contract=False))


def test_a_link_out_of_a_task_is_refused(tmp_path: Path) -> None:
    folder = suite(tmp_path / "suite")
    (folder / "one" / "secret").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="is a link"):
        read_suite(folder)


def test_tasks_are_chosen_by_name() -> None:
    assert [task.name for task in choose(TASKS, ("even", "area"))] == ["area", "even"]
    assert choose(TASKS, ()) == TASKS
    with pytest.raises(UsageError, match="no task 'evn'"):
        choose(TASKS, ("even", "evn"))


def test_no_shipped_task_holds_what_python_left_behind() -> None:
    assert SHIPPED_SUITE.is_dir()
    assert all(path.endswith((".py", ".toml")) for task in TASKS for path, _ in task.files)
