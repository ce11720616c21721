"""How one command is run: its output, its report, its end."""

from __future__ import annotations

import hashlib
import signal
import threading
from pathlib import Path

import pytest

from tests.contract.sandbox_ground import Ground, make_ground, python
from veriloop_tui.contract.command import End, Place, run_command
from veriloop_tui.contract.job import Limits, Tier
from veriloop_tui.errors import SandboxUnavailable
from veriloop_tui.wiring.clock import SystemClock

TIERS: tuple[Tier, ...] = ("best", "reduced", "none")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return make_ground(tmp_path)


@pytest.mark.parametrize("tier", TIERS)
def test_output_and_errors_come_in_order_with_the_digest_of_all_of_it(
    ground: Ground, tier: Tier
) -> None:
    ran = ground.run("echo one; echo two >&2; echo three; exit 7", tier)
    assert (ran.end, ran.exit_code, ran.tail) == (End.EXITED, 7, "one\ntwo\nthree\n")
    assert ran.digest == hashlib.sha256(b"one\ntwo\nthree\n").hexdigest()
    assert 0 < ran.duration < 60


@pytest.mark.parametrize("tier", TIERS)
def test_a_signal_is_a_negative_exit_code(ground: Ground, tier: Tier) -> None:
    killed = python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert ground.run(killed, tier).exit_code == -signal.SIGSEGV


@pytest.mark.parametrize("tier", TIERS)
def test_output_beyond_the_limit_ends_the_run(ground: Ground, tier: Tier) -> None:
    ran = ground.run("yes", tier, limits=Limits(output=100_000), timeout=60)
    assert ran.end is End.OUTPUT_LIMIT
    assert ran.digest == hashlib.sha256(b"y\n" * 50_000).hexdigest()
    assert len(ran.tail) <= 4000


def test_a_burst_of_output_just_before_the_end_breaks_the_limit_too(ground: Ground) -> None:
    ran = ground.run("head -c 200000 /dev/zero", limits=Limits(output=100_000))
    assert ran.end is End.OUTPUT_LIMIT


def test_the_tail_is_harmless_text(ground: Ground) -> None:
    ran = ground.run(r"printf 'a\033[31mred\033[0m\000\377\007\033]0;title\007b'")
    assert ran.tail == "ared\ufffd\ufffd\ufffdb"


@pytest.mark.parametrize("tier", TIERS)
def test_a_report_is_collected_from_outside_the_workspace(ground: Ground, tier: Tier) -> None:
    ran = ground.run("printf hello >{report}; ls -A", tier)
    assert (ran.report, ran.report_problem, ran.tail) == (b"hello", "", "")


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("true", ""),
        ("ln -s /etc/passwd {report}", "cannot be opened"),
        ("mkdir {report}", "no regular file"),
        ("mkfifo {report}", "no regular file"),
        ("head -c 2000 /dev/zero >{report}", "more than 1000 bytes"),
    ],
)
def test_what_is_no_plain_small_file_is_no_report(
    ground: Ground, tier: Tier, line: str, problem: str
) -> None:
    ran = ground.run(line, tier, limits=Limits(report=1000))
    assert ran.exit_code == 0
    assert ran.report is None
    assert problem in ran.report_problem
    assert bool(problem) == bool(ran.report_problem)


@pytest.mark.parametrize("tier", TIERS)
def test_a_command_that_is_not_there_ends_with_127(ground: Ground, tier: Tier) -> None:
    assert ground.run(("no-such-program",), tier).exit_code == 127


@pytest.mark.parametrize("tier", TIERS)
def test_a_stage_that_cannot_be_entered_is_an_error_and_no_exit_code(
    ground: Ground, tier: Tier
) -> None:

    place = Place(ground.root, ground.data / "run", lambda _argv: ("/bin/sh", "-c", "exit 3"))
    with pytest.raises(SandboxUnavailable, match="could not be started"):
        run_command(
            lambda _report: ("true",),
            10.0,
            place,
            ground.sandbox(tier),
            Limits(),
            SystemClock(),
            threading.Event(),
        )


def test_closed_and_misused_descriptors_do_not_confuse_the_runner(ground: Ground) -> None:
    noise = (
        "import os\n"
        "for wire in range(3, 200):\n"
        '  try: os.write(wire, b\'{"exit-code": 0}\\n{"child-pid": 1}\\n\')\n'
        "  except OSError: pass\n"
        "raise SystemExit(5)"
    )
    for tier in TIERS:
        ran = ground.run(python(noise), tier)
        assert (ran.end, ran.exit_code) == (End.EXITED, 5)
