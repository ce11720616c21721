"""The user edits while a scripted model answers or the checks run: the user's bytes come first."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.ground import (
    Files,
    Ground,
    below,
    make_ground,
    no_leftovers,
    replace,
    run_line,
    shell_contract,
    wait_for,
)

CALC: Files = {"calc.py": "def add(a, b):\n    return a - b\n", "notes.txt": "old\n"}
# Only the candidate's check takes long enough for a user to do something meanwhile.
ADDS = shell_contract("grep -q 'a + b' calc.py && sleep 1.5")
GOOD = replace("calc.py", "    return a - b", "    return a + b")
MINE = "# written by the user\n"


def edit(ground: Ground, path: str) -> None:
    """What an editor does: the file's text with the user's line at its end."""
    ground.write({path: ground.read(path) + MINE})


def test_an_edit_of_the_touched_file_while_the_model_answers_is_kept(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, CALC, ADDS)
    answer = "Let me think about that. " * 80 + "\n\n" + GOOD
    with ground.started(*run_line(ground.model(answer), attempts=3)) as running:
        running.until("proposal-delta")
        edit(ground, "calc.py")
        done = running.finish()

    assert done.code == 0, (done.out[-1500:], done.err)
    assert done.attempts[0]["decision"] == "stale"
    assert [epoch["paths"] for epoch in done.of("epoch-started")] == [["calc.py"]]
    # The old candidate holds the file as it was before, so the model is asked afresh.
    assert [event["form"] for event in done.of("attempt-started")] == ["search-replace"] * 2
    assert done.attempts[1]["decision"] == "committed"
    assert ground.read("calc.py") == "def add(a, b):\n    return a + b\n" + MINE
    ground.fsck()


def test_an_edit_of_another_file_while_the_checks_run_only_measures_anew(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, CALC, ADDS)
    with ground.started(*run_line(ground.model(GOOD), attempts=3)) as running:
        running.until("verification-started")
        wait_for(lambda: below(running, "sleep") is not None)
        edit(ground, "notes.txt")
        done = running.finish()

    assert done.code == 0, (done.out[-1500:], done.err)
    assert [attempt["decision"] for attempt in done.attempts] == ["stale", "committed"]
    assert [epoch["paths"] for epoch in done.of("epoch-started")] == [["notes.txt"]]
    assert [event["form"] for event in done.of("attempt-started")] == [
        "search-replace",
        "re-applied",
    ]
    assert len(done.of("proposal-finished")) == 1
    assert ground.read("notes.txt") == "old\n" + MINE
    assert ground.read("calc.py") == "def add(a, b):\n    return a + b\n"
    ground.fsck()


def test_the_users_own_repair_while_the_checks_run_wins_over_the_models(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, CALC, ADDS)
    own = "def add(a, b):\n    return sum((a, b))  # a + b\n"
    with ground.started(*run_line(ground.model(GOOD), attempts=3)) as running:
        running.until("verification-started")
        wait_for(lambda: below(running, "sleep") is not None)
        ground.write({"calc.py": own})
        done = running.finish()

    # All is satisfied now, but by no commit of this run.
    assert (done.code, done.ended["outcome"]) == (5, "nothing-to-improve"), done.err
    assert [attempt["decision"] for attempt in done.attempts] == ["stale"]
    assert ground.read("calc.py") == own
    ground.fsck()


def test_a_file_that_the_user_deletes_meanwhile_stays_deleted(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, CALC, ADDS)
    with ground.started(*run_line(ground.model(GOOD), attempts=2)) as running:
        running.until("verification-started")
        wait_for(lambda: below(running, "sleep") is not None)
        (ground.root / "calc.py").unlink()
        done = running.finish()

    assert done.code == 1, (done.out[-1500:], done.err)
    assert done.verdicts[1] == ("invalid", "rule-rejected")
    assert not (ground.root / "calc.py").exists()
    no_leftovers(tmp_path)
    ground.fsck()


def test_a_rollback_says_which_files_the_user_edited_since_and_can_be_undone(
    tmp_path: Path,
) -> None:
    ground = make_ground(tmp_path, CALC, ADDS)
    assert ground.run(ground.model(GOOD)).code == 0
    edit(ground, "calc.py")
    edited = ground.read("calc.py")
    first = next(row["bundle"] for row in ground.veriloop("log", "--json").json if row["bundle"])

    back = ground.veriloop("rollback", first, "--yes")
    assert back.code == 0, back
    assert "calc.py  (you edited this one)" in back.out
    assert ground.read("calc.py") == "def add(a, b):\n    return a - b\n"

    undo = next(line for line in back.out.splitlines() if line.startswith("undo with"))
    ident = undo.rstrip("`").split()[-1]
    assert ground.veriloop("rollback", ident, "--yes").code == 0
    assert ground.read("calc.py") == edited
    ground.fsck()
