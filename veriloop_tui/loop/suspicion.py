"""Known ways to forge a passing test from inside, looked for in the lines a candidate adds.

A hint for the person who approves, not a proof: code that runs inside the test process can always
forge its report. docs/security.md says so. Looks at the changes themselves, not at their diff,
which is cut where it is long.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath

from veriloop_tui.core.diff import MAX_BYTES, MAX_CHARACTERS
from veriloop_tui.core.excerpt import one_line
from veriloop_tui.core.snapshot import Change, Write

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"\b_exit\b|\babort\(|\b(?:exec|spawn)[lv]p?e?\(|\bos\.kill|\braise_signal\b"),
        "ends the process without the test runner",
    ),
    (re.compile(r"\bsys\.exit\b|\bSystemExit\b"), "exits the process"),
    (re.compile(r"PYTEST_|\bpytest\b|\b_pytest\b|\bunittest\b"), "refers to the test runner"),
    (
        re.compile(r"junit|--junitxml|report\.xml|/run/veriloop|/proc/", re.IGNORECASE),
        "refers to the test report or to the sandbox",
    ),
    (
        re.compile(
            r"\bsys\.(?:argv|modules|settrace|setprofile)\b|\binspect\.stack\b|\b_getframe\b"
            r"|\bgc\.get_|__subclasses__|__code__|\bctypes\b"
        ),
        "looks at or replaces what is running",
    ),
    (
        re.compile(
            r"__import__|\bimportlib\b|__builtins__|\bbuiltins\b|\bglobals\(\)"
            r"|(?<![\w.])(?:exec|eval|compile)\("
        ),
        "reaches code by a name that need not be written out",
    ),
    (re.compile(r"__(?:eq|ne|bool|lt|le|gt|ge)__"), "overrides a comparison"),
    (
        re.compile(r"\bCI\b.{0,200}environ|environ.{0,200}\bCI\b|\bgetenv\b"),
        "looks at the test environment",
    ),
    (re.compile(r"\batexit\b|\b__del__\b"), "runs code as the process ends"),
)
_TOP_FOLDERS = ("", "src")


def suspicions(
    changes: Iterable[Change], read: Callable[[str], bytes | None], diff: str
) -> tuple[str, ...]:
    """One sentence per kind of finding; `read` gives a file's old bytes, `None` if there is none.

    `diff` is what the user is shown of the changes.
    """
    found: dict[str, str] = {}
    if len(diff) >= MAX_CHARACTERS:
        found["cut"] = "The change is too long: its middle is not shown."
    for change in changes:
        if isinstance(change, Write):
            before = read(change.path)
            _look_at_path(change.path, before is None, found)
            _look_at_lines(change, before or b"", found)
    return tuple(found.values())


def _look_at_path(path: str, created: bool, found: dict[str, str]) -> None:
    parts = PurePosixPath(path).parts
    top = parts[1:] if parts[0] in _TOP_FOLDERS else parts
    name = top[0].removesuffix(".py") if top else ""
    if created and path.endswith(".py") and name in sys.stdlib_module_names:
        shown = one_line(path, 120)
        found.setdefault("shadow", f"A new file takes the place of Python's own '{name}': {shown}")


def _look_at_lines(change: Write, before: bytes, found: dict[str, str]) -> None:
    try:
        text = change.content.decode("utf-8")
        hidden = len(change.content) > MAX_BYTES
    except UnicodeDecodeError:
        text, hidden = change.content.decode("utf-8", "replace"), True
    if hidden:
        shown = one_line(change.path, 120)
        found.setdefault("hidden", f"The new content of a file is not shown: {shown}")
    old = set(before.decode("utf-8", "replace").splitlines())
    for line in text.splitlines():
        if line in old:
            continue
        for pattern, meaning in _PATTERNS:
            if meaning not in found and pattern.search(line):
                found[meaning] = f"An added line {meaning}: {one_line(line, 120)}"
