"""From what one command left behind to the outcomes of its checks. Pure."""

from __future__ import annotations

from typing import assert_never

from veriloop_tui.contract.parse_exit import read_exit
from veriloop_tui.contract.parse_junit import read_junit
from veriloop_tui.contract.unreadable import Unreadable
from veriloop_tui.core.obligation import CheckOutcome, ReportKind

__all__ = ["Unreadable", "read_report"]


def read_report(
    kind: ReportKind, report: bytes | None, exit_code: int, obligation: str, output_tail: str = ""
) -> tuple[CheckOutcome, ...]:
    """Every check of one run, its exit check last.

    `report` is the report file's bytes, `None` where the command wrote none; `exit_code` is
    negative for a signal; `output_tail` is the end of the command's output, quoted by the exit
    check. Raises `Unreadable` where report and exit code do not tell a whole, consistent story.
    """
    ending = read_exit(exit_code, obligation, output_tail)
    match kind:
        case "exit":
            return (ending,)
        case "junit":
            return (*read_junit(report, exit_code, obligation), ending)
        case _:
            assert_never(kind)
