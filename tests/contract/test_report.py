"""The two kinds of report, and the exit check that both have."""

from __future__ import annotations

import pytest

from veriloop_tui.contract.report import Unreadable, read_report
from veriloop_tui.core.obligation import CheckId, CheckKind

PASSING = b'<testsuite><testcase classname="test_x" name="test_a"/></testsuite>'
EXIT = CheckId("lint", CheckKind.EXIT, "exit")


@pytest.mark.parametrize(("exit_code", "value"), [(0, 0), (1, 1), (255, 1)])
def test_an_exit_obligation_has_the_one_check(exit_code: int, value: int) -> None:
    (outcome,) = read_report("exit", None, exit_code, "lint")
    assert (outcome.check, outcome.value) == (EXIT, value)


def test_a_failed_command_is_quoted_by_its_exit_check() -> None:
    (outcome,) = read_report("exit", None, 1, "lint", "\x1b[31mfirst\x1b[0m\nlast words")
    assert outcome.excerpt == "first\nlast words"
    (outcome,) = read_report("exit", None, 0, "lint", "noise")
    assert outcome.excerpt == ""


def test_a_junit_obligation_has_its_exit_check_too() -> None:
    outcomes = read_report("junit", PASSING, 1, "lint")
    assert outcomes[-1].check == EXIT
    assert outcomes[-1].value == 1
    assert [o.check.kind for o in outcomes[:-1]] == [CheckKind.TEST, CheckKind.COLLECT]


@pytest.mark.parametrize("exit_code", [-9, -11, 126, 127])
def test_a_command_that_crashed_or_never_started_cannot_be_read(exit_code: int) -> None:
    for kind, report in (("exit", None), ("junit", PASSING)):
        with pytest.raises(Unreadable) as caught:
            read_report(kind, report, exit_code, "lint")  # type: ignore[arg-type]
        assert caught.value.reason
