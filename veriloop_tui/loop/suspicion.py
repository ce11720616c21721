"""Known ways to forge a passing test from inside, looked for in the lines a candidate adds.

A hint for the person who approves, not a proof: code that runs inside the test process can always
forge its report. docs/security.md says so.
"""

from __future__ import annotations

import re

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\bos\._exit\b|\bos\.abort\b"), "ends the process without the test runner"),
    (re.compile(r"\bsys\.exit\b|\bSystemExit\b"), "exits the process"),
    (re.compile(r"PYTEST_|\bpytest\b|\b_pytest\b|\bunittest\b"), "refers to the test runner"),
    (re.compile(r"junit|--junitxml|report\.xml", re.IGNORECASE), "refers to the test report"),
    (
        re.compile(r"\bsys\.(modules|settrace|setprofile)\b|\binspect\.stack\b|\b_getframe\b"),
        "looks at or replaces what is running",
    ),
    (re.compile(r"def __(eq|ne|bool|lt|le|gt|ge)__\b"), "overrides a comparison"),
    (re.compile(r"\bCI\b.*environ|environ.*\bCI\b|\bgetenv\b"), "looks at the test environment"),
    (re.compile(r"\batexit\b|\b__del__\b"), "runs code as the process ends"),
)


def suspicions(diff: str) -> tuple[str, ...]:
    """One sentence per pattern found in added lines of a unified diff, with the line."""
    added = [line[1:] for line in diff.splitlines() if line.startswith("+") and line[:3] != "+++"]
    found: dict[str, str] = {}
    for line in added:
        for pattern, meaning in _PATTERNS:
            if pattern.search(line):
                found.setdefault(meaning, line.strip()[:120])
    return tuple(f"An added line {meaning}: {line}" for meaning, line in found.items())
