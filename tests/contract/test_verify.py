"""The contract's commands on a staged candidate, through real pytest runs."""

from __future__ import annotations

import py_compile
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.sandbox_ground import PYTHON, Ground, make_ground, soon
from veriloop_tui.contract.job import Limits
from veriloop_tui.contract.verify import ContractVerifier
from veriloop_tui.core.obligation import Measurement, Obligation, Ranked, Unrankable
from veriloop_tui.core.snapshot import Change, Write
from veriloop_tui.errors import Cancelled, StaleBase
from veriloop_tui.store.staging.ladder import WantedRung
from veriloop_tui.wiring.clock import SystemClock

PYTEST = Obligation(
    "tests",
    (PYTHON, "-m", "pytest", "-q", "--continue-on-collection-errors", "--junitxml={report}"),
    "junit",
    timeout=120.0,
)
NEVER = threading.Event()


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    ground = make_ground(tmp_path)
    (ground.root / "code.py").write_text("def one(): return 0\ndef two(): return 2\n")
    (ground.root / "test_code.py").write_text(
        "import code as c\n"
        "def test_one(): assert c.one() == 1\ndef test_two(): assert c.two() == 2\n"
    )
    return ground


def verifier(
    ground: Ground,
    *obligations: Obligation,
    rung: WantedRung = "overlay",
    look: Callable[[], object] = lambda: 0,
    limits: Limits | None = None,
) -> ContractVerifier:
    return ContractVerifier(
        obligations,
        ground.stager(rung),
        ground.sandbox("best"),
        look,
        look,
        SystemClock(),
        limits or Limits(),
    )


def shell(name: str, line: str, timeout: float = 60.0) -> Obligation:
    return Obligation(name, line, "exit", timeout=timeout)


def values(measured: Measurement) -> dict[str, int]:
    assert isinstance(measured, Ranked), measured
    return {outcome.check.name: outcome.value for outcome in measured.runs[0]}


@pytest.mark.parametrize("rung", ["overlay", "copy"])
def test_the_checks_of_a_candidate_are_ranked_and_those_of_the_incumbent_too(
    ground: Ground, rung: WantedRung
) -> None:
    under_test = verifier(ground, PYTEST, rung=rung)
    fix = Write("code.py", b"def one(): return 1\ndef two(): return 2\n")
    before, after = (under_test.measure(c, None, NEVER) for c in ((), (fix,)))
    expected = {"test_code.py::test_one": 1, "test_code.py::test_two": 0, "test_code.py": 0}
    assert values(before) == {**expected, "exit": 1}
    assert values(after) == {**expected, "test_code.py::test_one": 0, "exit": 0}
    assert (under_test.sandbox_tier, under_test.staging_rung) == ("best", rung)
    assert isinstance(after, Ranked)
    assert after.covered == (frozenset({"tests"}),)
    assert after.records[0].argv == PYTEST.run
    assert "passed" in after.records[0].output_tail


def test_an_edit_of_the_same_size_in_the_same_second_never_runs_old_bytecode(
    ground: Ground,
) -> None:
    """20 of 20: the incumbent's compiled file lies beside each edit and looks fresh for it."""
    code = ground.root / "code.py"
    run = f"{PYTHON} -c 'import sys, code; sys.exit(code.one())'"
    under_test = verifier(ground, shell("exit", run))
    for _ in range(20):
        shutil.rmtree(ground.root / "__pycache__", ignore_errors=True)
        code.write_text("def one(): return 1\n")
        py_compile.compile(str(code))
        assert (ground.root / "__pycache__").is_dir()
        candidate = Write("code.py", b"def one(): return 0\n")
        assert values(under_test.measure((candidate,), None, NEVER)) == {"exit": 0}


def test_obligations_run_in_order_in_one_stage_and_a_subset_runs_alone(ground: Ground) -> None:
    build, use = shell("build", "echo x >product"), shell("use", "test -e product")
    under_test = verifier(ground, build, use)
    both = under_test.measure((), None, NEVER)
    alone = under_test.measure((), frozenset({"use"}), NEVER)
    assert isinstance(both, Ranked)
    assert isinstance(alone, Ranked)
    assert [outcome.value for outcome in both.runs[0]] == [0, 0]
    assert [outcome.value for outcome in alone.runs[0]] == [1]
    assert (both.covered, alone.covered) == (
        (frozenset({"build", "use"}),),
        (frozenset({"use"}),),
    )
    assert not (ground.root / "product").exists()


@pytest.mark.parametrize(
    ("obligation", "reason"),
    [
        (shell("o", "sleep 60", timeout=0.5), "did not end within 0.5 s"),
        (shell("o", "kill -SEGV $$"), "was killed by signal 11"),
        (shell("o", "yes"), "more output"),
        (shell("o", "no-such-program"), "was not found"),
        (Obligation("o", "exit 0", "junit"), "report"),
        (Obligation("o", "echo nonsense >{report}", "junit"), "report"),
        (Obligation("o", "mkdir {report}", "junit"), "no regular file"),
        (replace(PYTEST, name="o", run=(*PYTEST.run[:-1], "--junitxml={report}", "-x", "none")),
         ""),
    ],
)  # fmt: skip
def test_a_run_that_cannot_be_read_is_unrankable_and_names_the_culprit(
    ground: Ground, obligation: Obligation, reason: str
) -> None:
    under_test = verifier(ground, shell("fine", "true"), obligation, limits=Limits(output=10**6))
    measured = under_test.measure((), None, NEVER)
    assert isinstance(measured, Unrankable), measured
    assert measured.obligation == "o"
    assert reason in measured.reason
    assert [record.obligation for record in measured.records] == ["fine", "o"]


def test_a_cancel_ends_the_measurement_at_once(ground: Ground) -> None:
    cancel = threading.Event()
    threading.Timer(0.5, cancel.set).start()
    with pytest.raises(Cancelled):
        verifier(ground, shell("o", "sleep 300; :")).measure((), None, cancel)
    assert soon(lambda: list((ground.data / "scratch").glob("stage-*")) == [])


def test_a_live_edit_during_a_run_voids_it(ground: Ground) -> None:
    """The edit shines through the overlay: the run's view of the file is torn."""
    flag = ground.root / "flag"
    flag.write_text("old")
    editor = threading.Timer(1.0, lambda: flag.write_text("new") and None)
    line = shell("o", "cat flag; sleep 2; cat flag")
    under_test = verifier(ground, line, look=flag.read_text)
    editor.start()
    with pytest.raises(StaleBase):
        under_test.measure((), None, NEVER)
    measured = under_test.measure((), None, NEVER)
    assert isinstance(measured, Ranked)
    assert measured.records[0].output_tail == "newnew"


def test_a_quoted_report_path_survives_the_users_shell(ground: Ground) -> None:
    wanted = Obligation("o", "printf '<testsuites/>' >{report} && exit 5", "junit")
    measured = verifier(ground, wanted).measure((), None, NEVER)
    assert measured.records[0].argv == ("/bin/sh", "-c", wanted.run)
    assert measured.records[0].exit_code == 5


def test_asking_for_no_obligation_of_the_contract_is_a_mistake_of_the_caller(
    ground: Ground,
) -> None:
    changes: tuple[Change, ...] = ()
    with pytest.raises(ValueError, match="no obligation"):
        verifier(ground, PYTEST).measure(changes, frozenset({"other"}), NEVER)
