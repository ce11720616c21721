"""How commands end: the exit code, the last event, and what is left. All models are scripted."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.e2e.ground import (
    AFTER_NO_PROGRESS,
    Files,
    Ground,
    below,
    everything,
    make_ground,
    no_leftovers,
    replace,
    run_line,
    shell_contract,
    wait_for,
)

BROKEN = "def add(a, b):\n    return a - b\n"
CALC: Files = {"calc.py": BROKEN}
ADDS = shell_contract("grep -q 'a + b' calc.py")
GOOD = replace("calc.py", "    return a - b", "    return a + b")
USELESS = replace("calc.py", "    return a - b", "    return a * b")
LONG = "Let me think about that. " * 80


def test_a_spent_budget_is_exit_1_and_is_named(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, CALC, ADDS)
    other = replace("calc.py", "    return a - b", "    return a / b")
    done = ground.run(ground.model(USELESS, {AFTER_NO_PROGRESS: other}), attempts=2)
    assert done.code == 1
    assert done.verdicts == [("no-progress", "rule-rejected")] * 2
    ended = done.ended
    assert (ended["outcome"], ended["detail"]) == ("budget-spent", "attempts")
    assert (ended["attempts"], ended["commits"]) == (2, 0)
    assert ended["rank_before"] == ended["rank_after"] == 1
    assert ended["bundle"]


def test_without_a_terminal_commits_must_be_let_through_beforehand(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, CALC, ADDS)
    line = [word for word in run_line(ground.model(GOOD), attempts=1) if word != "--auto"]
    done = ground.veriloop(*line)
    assert (done.code, done.out) == (2, "")
    assert "--auto" in done.err


def test_the_terminal_app_without_a_terminal_is_a_usage_error(tmp_path: Path) -> None:
    done = make_ground(tmp_path, CALC, ADDS).veriloop()
    assert done.code == 2
    assert "terminal" in done.err


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (ADDS.replace('"60s"', '"soon"'), "veriloop.toml:7: obligation[1].timeout"),
        (ADDS.replace("repeats", "repeat"), "veriloop.toml:8: obligation[1].repeat"),
        (ADDS.replace('report = "exit"', 'report = "exit'), "veriloop.toml:6"),
    ],
    ids=["value", "key", "syntax"],
)
def test_a_broken_contract_is_exit_2_and_names_line_and_key(
    tmp_path: Path, broken: str, named: str
) -> None:
    ground = make_ground(tmp_path, CALC, ADDS)
    ground.write({"veriloop.toml": broken})
    for arguments in (("verify",), run_line(ground.model(GOOD), attempts=1)):
        done = ground.veriloop(*arguments)
        assert done.code == 2
        assert named in done.err
        assert "Traceback" not in done.err


def test_a_contract_that_the_user_changes_must_be_trusted_again(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, CALC, ADDS)
    model = ground.model(GOOD)
    ground.write({"veriloop.toml": shell_contract("uname; grep -q 'a + b' calc.py")})

    for arguments in (run_line(model, attempts=1), ["verify"]):
        refused = ground.veriloop(*arguments)
        assert (refused.code, refused.out) == (2, "")
        assert "changed since you trusted it" in refused.err
        assert "veriloop trust" in refused.err
    assert ground.veriloop("trust").code == 2  # there is no terminal to ask on

    trusted = ground.veriloop("trust", "--yes")
    assert trusted.code == 0
    assert "uname" in trusted.out
    assert ground.run(model).code == 0


def test_a_contract_nobody_trusted_runs_nothing(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, CALC, ADDS)
    other = Ground(tmp_path / "other")
    other.root.mkdir(parents=True)
    other.write({**CALC, "veriloop.toml": ADDS})
    done = other.run(ground.model(GOOD))
    assert done.code == 2
    assert "has not been trusted yet" in done.err


def test_a_model_that_is_not_on_the_disk_is_exit_2(tmp_path: Path) -> None:
    done = make_ground(tmp_path, CALC, ADDS).run(tmp_path / "missing.gguf")
    assert done.code == 2
    assert "missing.gguf" in done.err


def test_a_file_that_is_no_model_is_exit_4(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, CALC, ADDS)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + b"\xff" * 100)
    done = ground.run(tmp_path / "broken.gguf")
    assert done.code == 4
    assert "broken.gguf" in done.err
    assert "Traceback" not in done.err
    no_leftovers(tmp_path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [("exec no-such-program", "was not found"), ("sleep 1000", "did not end within 2 s")],
    ids=["missing", "endless"],
)
def test_a_workspace_that_cannot_be_ranked_is_exit_3_and_the_culprit_is_named(
    tmp_path: Path, line: str, reason: str
) -> None:
    ground = make_ground(tmp_path, CALC, shell_contract(line, timeout="2s"))
    verified = ground.veriloop("verify")
    assert verified.code == 3
    assert "'line'" in verified.err
    assert reason in verified.err
    done = ground.run(ground.model(GOOD))
    assert done.code == 3
    assert done.ended["outcome"] == "not-rankable"
    assert "'line'" in done.ended["detail"]
    assert done.attempts == []
    no_leftovers(tmp_path)


def test_a_workspace_without_a_failing_check_is_exit_5(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, CALC, shell_contract("true"))
    assert ground.veriloop("verify").code == 0
    done = ground.run(ground.model(GOOD))
    assert done.code == 5
    assert (done.ended["outcome"], done.ended["attempts"]) == ("nothing-to-improve", 0)
    assert "a - b" in ground.read("calc.py")


def test_verify_tells_the_rank_by_its_exit_code(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, CALC, ADDS)
    before = everything(ground.root)
    done = ground.veriloop("verify", "--json")
    assert done.code == 1
    assert done.events[-1]["type"] == "incumbent-measured"
    assert done.events[-1]["total"] == 1
    assert everything(ground.root) == before


def test_an_engine_that_is_killed_ends_the_run_and_the_next_one_works(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, CALC, ADDS)
    before = everything(ground.root)
    with ground.started(*run_line(ground.model(LONG + GOOD), attempts=3)) as running:
        running.until("proposal-delta")
        engine = below(running, "--die-with-parent")
        assert engine is not None
        engine.kill()
        done = running.finish()
    assert done.code == 4, done.err
    assert done.ended["outcome"] == "engine-failed"
    assert "SIGKILL" in done.ended["detail"]
    assert done.ended["commits"] == 0
    assert everything(ground.root) == before
    no_leftovers(tmp_path)
    ground.fsck()

    again = ground.run(ground.model(GOOD))
    assert again.code == 0
    assert "a + b" in ground.read("calc.py")


def test_an_interrupt_while_the_prompt_is_evaluated_ends_the_run(tmp_path: Path) -> None:
    # About 100,000 tokens, which even this model needs many seconds for.
    large = BROKEN + "".join(f"# line {number} of many\n" for number in range(5000))
    ground = make_ground(tmp_path, {"calc.py": large}, ADDS)
    before = everything(ground.root)
    line = run_line(ground.model(GOOD), "--n-ctx", "131072", attempts=1, task="Mend calc.py.")
    with ground.started(*line) as running:
        running.until("attempt-started")
        engine = below(running, "--die-with-parent")
        assert engine is not None
        loaded = engine.cpu_times().user
        wait_for(lambda: engine.cpu_times().user > loaded + 0.5)
        running.process.send_signal(signal.SIGINT)
        done = running.finish()
    assert done.code == 130, (done.out[-500:], done.err)
    assert done.ended["outcome"] == "stopped"
    assert done.of("proposal-delta") == []
    assert everything(ground.root) == before
    no_leftovers(tmp_path)
    ground.fsck()


def test_an_interrupt_while_the_checks_run_ends_them_too(tmp_path: Path) -> None:
    contract = shell_contract(
        "grep -q 'a - b' calc.py || sleep 1000 & wait; grep -q 'a + b' calc.py"
    )
    ground = make_ground(tmp_path, CALC, contract)
    before = everything(ground.root)
    with ground.started(*run_line(ground.model(GOOD), attempts=1)) as running:
        running.until("verification-started")
        wait_for(lambda: below(running, "sleep") is not None)
        running.process.send_signal(signal.SIGINT)
        done = running.finish()
    assert done.code == 130, (done.out[-500:], done.err)
    assert (done.ended["outcome"], done.ended["commits"]) == ("stopped", 0)
    assert everything(ground.root) == before
    no_leftovers(tmp_path)
    ground.fsck()


def test_an_interrupt_of_verify_is_exit_130(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, CALC, shell_contract("sleep 1000"))
    with ground.started("verify") as running:
        wait_for(lambda: below(running, "sleep") is not None)
        running.process.send_signal(signal.SIGINT)
        done = running.finish()
    assert done.code == 130
    assert "Traceback" not in done.err
    no_leftovers(tmp_path)


def test_two_runs_cannot_have_the_same_workspace(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, CALC, shell_contract("sleep 1000"))
    with ground.started("verify") as running:
        wait_for(lambda: below(running, "sleep") is not None)
        done = ground.veriloop("verify")
        assert done.code == 1
        assert "in use by another VeriLoop" in done.err
    no_leftovers(tmp_path)


def test_doctor_says_what_there_is(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, CALC, ADDS)
    done = ground.veriloop("doctor", "--json")
    found = {finding["name"]: finding for finding in json.loads(done.out)}
    assert done.code == 0
    assert found["sandbox"]["ok"]
    assert found["staging"]["found"] == "overlay"
    assert not found["model"]["ok"]
    assert "models pull" in found["model"]["remedy"]
