"""The exit check that every obligation has."""

from __future__ import annotations

from veriloop_tui.contract.unreadable import Unreadable
from veriloop_tui.core.excerpt import excerpt
from veriloop_tui.core.obligation import CheckId, CheckKind, CheckOutcome

EXIT_CHECK = "exit"
EXCERPT_LIMIT = 1200

_NOT_EXECUTABLE = 126
_NOT_FOUND = 127


def read_exit(exit_code: int, obligation: str, output_tail: str) -> CheckOutcome:
    """The exit check: 0 if the command ended with 0, else 1.

    Raises `Unreadable` for a command that a signal ended or that the shell could not start.
    """
    if exit_code < 0:
        raise Unreadable(f"was ended by signal {-exit_code}")
    if exit_code == _NOT_EXECUTABLE:
        raise Unreadable("names a command that is not executable (exit code 126)")
    if exit_code == _NOT_FOUND:
        raise Unreadable("names a command that was not found (exit code 127)")
    failed = exit_code != 0
    text = excerpt(output_tail, EXCERPT_LIMIT) if failed else ""
    check = CheckId(obligation, CheckKind.EXIT, EXIT_CHECK)
    return CheckOutcome(check, int(failed), excerpt=text)
