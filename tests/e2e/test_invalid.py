"""Answers of a scripted model that are no candidates: never run, and nothing is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.ground import (
    AFTER_INVALID,
    Done,
    Files,
    Ground,
    create,
    delete,
    everything,
    make_ground,
    pytest_contract,
    rename,
    replace,
)

FILES: Files = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "tests/test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    "conftest.py": "COLLECT = 'all'\n",
}
GOOD = replace("calc.py", "    return a - b", "    return a + b")
REFUSED = ("invalid", "rule-rejected")


def calc(tmp: Path) -> Ground:
    return make_ground(tmp, FILES, pytest_contract())


def recited(ground: Ground, answers: list[str], telling: list[str]) -> Done:
    """One run in which the answer to `telling[i]`, found in the evidence, is `answers[i + 1]`."""
    then = dict(zip(telling, answers[1:], strict=False))
    assert len(then) == len(answers) - 1
    done = ground.run(ground.model(answers[0], then), attempts=len(answers))
    said = [finished["text"] for finished in done.of("proposal-finished")]
    assert said == answers, "the scripted model did not see the evidence it was to answer to"
    return done


def test_an_edit_of_a_test_the_contract_or_the_runner_is_refused_whole(tmp_path: Path) -> None:
    ground = calc(tmp_path)
    before = everything(ground.root)
    answers = {
        "tests/test_calc.py": replace(
            "tests/test_calc.py", "    assert add(1, 2) == 3", "    pass"
        ),
        "veriloop.toml": replace("veriloop.toml", 'report = "junit"', 'report = "exit"'),
        "conftest.py": GOOD
        + replace("conftest.py", "COLLECT = 'all'", "collect_ignore = ['tests']"),
        "deep/conftest.py": create("deep/conftest.py", "collect_ignore_glob = ['*']"),
        "sitecustomize.py": create("sitecustomize.py", "import os\nos._exit(0)"),
        "Tests/../tests/test_calc.py": delete("Tests/../tests/test_calc.py"),
        "pytest.py": create("pytest.py", "def main(): return 0"),
        "calc.py": rename("calc.py", "tests/test_other.py"),
        "pyproject.toml": create("pyproject.toml", "[tool.pytest.ini_options]\ntestpaths = []"),
    }
    telling = [f"{path}: is protected" if ".." not in path else "without '..'" for path in answers]
    telling[list(answers).index("calc.py")] = "tests/test_other.py: is protected"

    done = recited(ground, list(answers.values()), telling)

    assert done.verdicts == [REFUSED] * len(answers)
    assert done.of("verification-started") == []
    for attempt, reason in zip(done.attempts, telling, strict=True):
        assert reason in attempt["reason"]
        assert attempt["rank_after"] is None
    assert everything(ground.root) == before
    assert done.code == 1
    ground.fsck()


def test_an_edit_that_leaves_the_workspace_is_refused_and_nothing_outside_changes(
    tmp_path: Path,
) -> None:
    ground = calc(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.py").write_text("KEY = 1\n")
    (ground.root / "linked").symlink_to(outside)
    (ground.root / "alias.py").symlink_to(outside / "secret.py")
    before = everything(ground.root)
    untouched = everything(outside)
    answers = {
        "../outside/new.py": create("../outside/new.py", "X = 1"),
        str(outside / "new.py"): create(str(outside / "new.py"), "X = 1"),
        "linked/new.py": create("linked/new.py", "X = 1"),
        "linked/secret.py": replace("linked/secret.py", "KEY = 1", "KEY = 2"),
        "alias.py": replace("alias.py", "KEY = 1", "KEY = 2"),
        "~/new.py": create("~/new.py", "X = 1"),
        "../outside/calc.py": rename("calc.py", "../outside/calc.py"),
        "linked/calc.py": GOOD + rename("calc.py", "linked/calc.py"),
    }
    done = recited(ground, list(answers.values()), [f"{path}: " for path in answers])

    assert done.verdicts == [REFUSED] * len(answers), [a["reason"] for a in done.attempts]
    assert done.of("verification-started") == []
    assert everything(ground.root) == before
    assert everything(outside) == untouched
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("data", "home", "outside", "project", "scripted.gguf")
    ]
    assert list((tmp_path / "home").iterdir()) == []
    ground.fsck()


def test_text_without_an_edit_becomes_evidence_for_the_next_attempt(tmp_path: Path) -> None:
    ground = calc(tmp_path)
    # The second answer is given only to a prompt that holds this evidence.
    done = recited(ground, ["I would rather not say.", GOOD], [AFTER_INVALID])
    assert done.code == 0, done
    assert done.verdicts == [REFUSED, ("strict-progress", "committed")]
    assert AFTER_INVALID in done.attempts[0]["evidence"]["text"]
    assert "no edit" in done.attempts[0]["reason"]
    assert "return a + b" in ground.read("calc.py")


@pytest.mark.parametrize(
    ("answer", "telling"),
    [
        (replace("calc.py", "    return a * b", "    return a + b"), "    return a - b"),
        (replace("calc.py", "    return a - b", "    return a + b")[:-12], "calc.py"),
        (replace("nowhere.py", "    return a - b", "    return a + b"), "no such file"),
    ],
    ids=["no match", "unfinished", "unknown file"],
)
def test_an_edit_that_does_not_apply_says_what_is_wrong_with_it(
    tmp_path: Path, answer: str, telling: str
) -> None:
    ground = calc(tmp_path)
    before = everything(ground.root)
    done = ground.run(ground.model(answer))
    assert done.verdicts == [REFUSED]
    assert telling in done.attempts[0]["evidence"]["text"]
    assert done.of("verification-started") == []
    assert everything(ground.root) == before
