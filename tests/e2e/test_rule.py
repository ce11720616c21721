"""What the rule makes of a scripted model's edits that must not persist, or only just may."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.ground import (
    AFTER_NO_PROGRESS,
    Event,
    Files,
    Ground,
    everything,
    make_ground,
    no_leftovers,
    pytest_contract,
    replace,
)

TWO_FUNCTIONS = "def add(a, b):\n    return a - b\n\n\ndef sub(a, b):\n    return a - b\n"
TWO_TESTS = """
from calc import add, sub


def test_add():
    assert add(1, 2) == 3


def test_sub():
    assert sub(3, 2) == 1
"""
CALC: Files = {"src/deep/data.bin": b"\0\1", "calc.py": TWO_FUNCTIONS, "test_calc.py": TWO_TESTS}


def names(checks: list[Event]) -> set[str]:
    return {check["name"] for check in checks}


def calc(tmp: Path, contract: str) -> Ground:
    """A project where `add` is broken and `sub` works, with files of several modes."""
    ground = make_ground(tmp, CALC, contract)
    (ground.root / "calc.py").chmod(0o640)
    (ground.root / "link.py").symlink_to("calc.py")
    (ground.root / "src").chmod(0o750)
    return ground


def test_an_edit_that_mends_one_check_and_breaks_another_is_incomparable_and_leaves_no_trace(
    tmp_path: Path,
) -> None:
    ground = calc(tmp_path, pytest_contract())
    before = everything(ground.root)
    answer = replace(
        "calc.py", "def add(a, b):\n    return a - b", "def add(a, b):\n    return a + b"
    )
    answer += replace(
        "calc.py", "def sub(a, b):\n    return a - b", "def sub(a, b):\n    return a + b"
    )

    done = ground.run(ground.model(answer))

    assert done.code == 1, done
    assert done.verdicts == [("incomparable", "rule-rejected")]
    (attempt,) = done.attempts
    assert names(attempt["improved"]) == {"test_calc.py::test_add"}
    assert names(attempt["worsened"]) == {"test_calc.py::test_sub"}
    assert everything(ground.root) == before
    assert (done.ended["outcome"], done.ended["commits"]) == ("budget-spent", 0)
    assert done.ended["rank_after"] == done.ended["rank_before"]
    ground.fsck()


def test_an_edit_that_only_breaks_is_a_protected_regression(tmp_path: Path) -> None:
    ground = calc(tmp_path, pytest_contract())
    before = everything(ground.root)
    done = ground.run(ground.model(replace("calc.py", "def sub(a, b):", "def substract(a, b):")))
    # The import of the test file breaks: both tests are absent, and collecting fails too.
    assert done.verdicts == [("protected-regression", "rule-rejected")]
    assert "test_calc.py::test_sub" in names(done.attempts[0]["worsened"])
    assert everything(ground.root) == before


def test_a_repeated_candidate_is_not_verified_again(tmp_path: Path) -> None:
    ground = calc(tmp_path, pytest_contract())
    before = everything(ground.root)
    answer = replace(
        "calc.py", "def add(a, b):\n    return a - b", "def add(a, b):\n    return b - a"
    )
    same = "The same change in other words.\n\n" + answer

    done = ground.run(ground.model(answer, {AFTER_NO_PROGRESS: same}), attempts=3)

    assert done.verdicts == [("no-progress", "rule-rejected")] * 3
    assert [attempt["repeated"] for attempt in done.attempts] == [False, True, True]
    assert [event["attempt"] for event in done.of("verification-started")] == [1]
    assert done.code == 1
    assert (done.ended["outcome"], done.ended["detail"]) == ("budget-spent", "attempts")
    assert everything(ground.root) == before


def test_an_edit_whose_test_never_ends_is_unrankable_and_nothing_survives(tmp_path: Path) -> None:
    ground = calc(tmp_path, pytest_contract(timeout="3s"))
    before = everything(ground.root)
    endless = """\
import subprocess, time


def add(a, b):
    subprocess.Popen(["setsid", "sleep", "1000"], start_new_session=True)
    time.sleep(1000)"""
    done = ground.run(ground.model(replace("calc.py", "def add(a, b):\n    return a - b", endless)))
    assert done.code == 1, done
    assert done.verdicts == [("unrankable", "rule-rejected")]
    assert "did not end within 3 s" in done.attempts[0]["reason"]
    assert done.attempts[0]["rank_after"] is None
    no_leftovers(tmp_path)
    assert everything(ground.root) == before


def test_an_edit_that_ends_the_test_process_is_not_progress(tmp_path: Path) -> None:
    ground = calc(tmp_path, pytest_contract())
    before = everything(ground.root)
    exits = "import os\n\nos._exit(0)\n\n\ndef add(a, b):"
    done = ground.run(ground.model(replace("calc.py", "def add(a, b):", exits)))
    assert done.verdicts == [("unrankable", "rule-rejected")]
    assert "no report" in done.attempts[0]["reason"]
    assert everything(ground.root) == before


def test_a_mended_import_reveals_failing_tests_and_is_committed(tmp_path: Path) -> None:
    files = {
        "calc.py": "import a_module_that_is_nowhere\n\n" + TWO_FUNCTIONS,
        "test_calc.py": TWO_TESTS,
        "test_other.py": "def test_other():\n    assert True\n",
    }
    ground = make_ground(tmp_path, files, pytest_contract())
    done = ground.run(ground.model(replace("calc.py", "import a_module_that_is_nowhere\n", "")))

    assert done.verdicts == [("strict-progress", "committed")]
    (attempt,) = done.attempts
    assert [(c["kind"], c["name"]) for c in attempt["improved"]] == [("collect", "test_calc.py")]
    assert names(attempt["revealed"]) == {"test_calc.py::test_add", "test_calc.py::test_sub"}
    assert attempt["worsened"] == []
    assert "nowhere" not in ground.read("calc.py")
    last = done.of("incumbent-measured")[-1]["obligations"][0]
    assert "test_calc.py::test_add" in names([failing["check"] for failing in last["failing"]])
    assert done.code == 1


def test_tests_that_vanish_with_the_parameters_they_derive_from_stay_violated(
    tmp_path: Path,
) -> None:
    files = {
        "shop.py": "PRICES = [1, 2, -3]\n",
        "test_shop.py": """
import pytest

from shop import PRICES


@pytest.mark.parametrize("price", PRICES)
def test_no_price_is_negative(price):
    assert price > 0
""",
    }
    ground = make_ground(tmp_path, files, pytest_contract())
    before = everything(ground.root)
    fewer = replace("shop.py", "PRICES = [1, 2, -3]", "PRICES = [1, 2]")
    none = replace("shop.py", "PRICES = [1, 2, -3]", "PRICES = []")
    done = ground.run(ground.model(fewer, {AFTER_NO_PROGRESS: none}), attempts=2)

    # The failing one is gone, so it is still violated, and the command's exit code earns nothing.
    assert done.verdicts[0] == ("no-progress", "rule-rejected")
    assert done.attempts[0]["rank_after"] == done.attempts[0]["rank_before"]
    # The passing ones are gone too.
    assert done.verdicts[1] == ("protected-regression", "rule-rejected")
    assert "test_shop.py::test_no_price_is_negative[1]" in names(done.attempts[1]["worsened"])
    assert everything(ground.root) == before


LUCK = """
import os

import pytest

from calc import add, lucky


@pytest.mark.parametrize("number", range(12))
def test_luck(number):
    assert lucky()


def test_add():
    assert add(1, 2) == 3
"""
STEADY = "def add(a, b):\n    return a - b\n\n\ndef lucky():\n    return True\n"
HOPELESS = STEADY.replace("True", "False")
BY_CHANCE = "def lucky():\n    import os\n\n    return os.urandom(1)[0] < 128"


def test_a_flaky_check_is_quarantined_and_the_others_can_still_be_mended(tmp_path: Path) -> None:
    # Twelve runs of a check that passes every second time agree once in two thousand.
    flaky = "import os\n\n\ndef test_luck():\n    assert os.urandom(1)[0] < 128\n"
    ground = make_ground(tmp_path, {**CALC, "test_luck.py": flaky}, pytest_contract(repeats=12))
    answer = replace(
        "calc.py", "def add(a, b):\n    return a - b", "def add(a, b):\n    return a + b"
    )
    done = ground.run(ground.model(answer), attempts=3)

    first = done.of("incumbent-measured")[0]["obligations"][0]
    assert "test_luck.py::test_luck" in names(first["quarantined"])
    assert done.verdicts[0] == ("strict-progress", "committed")
    assert "test_calc.py::test_add" in names(done.attempts[0]["improved"])
    assert not done.attempts[0]["zero_rank"]
    # Completion is not claimed while a check is in quarantine.
    assert (done.code, done.ended["outcome"]) == (1, "stalled")
    assert "return a + b" in ground.read("calc.py")


def test_an_edit_that_makes_a_steady_check_flaky_gains_nothing(tmp_path: Path) -> None:
    files = {"calc.py": STEADY, "test_calc.py": LUCK}
    ground = make_ground(tmp_path, files, pytest_contract(repeats=2))
    before = everything(ground.root)
    answer = replace("calc.py", "    return a - b", "    return a + b")
    answer += replace("calc.py", "def lucky():\n    return True", BY_CHANCE)
    done = ground.run(ground.model(answer))
    assert done.verdicts == [("incomparable", "rule-rejected")]
    assert any("test_luck" in name for name in names(done.attempts[0]["worsened"]))
    assert everything(ground.root) == before


def test_an_edit_that_makes_failing_checks_pass_by_chance_gains_nothing(tmp_path: Path) -> None:
    files = {"calc.py": HOPELESS, "test_calc.py": LUCK}
    ground = make_ground(tmp_path, files, pytest_contract(repeats=2))
    before = everything(ground.root)
    done = ground.run(ground.model(replace("calc.py", "def lucky():\n    return False", BY_CHANCE)))
    assert [event["run_index"] for event in done.of("verification-started")] == [0, 1]
    assert done.ended["commits"] == 0
    assert done.attempts[0]["label"] in ("incomparable", "protected-regression")
    assert everything(ground.root) == before
