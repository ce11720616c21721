"""What is pointed out to the person who approves a change."""

from __future__ import annotations

import pytest

from veriloop_tui.core.diff import MAX_BYTES, MAX_CHARACTERS, unified_diff
from veriloop_tui.core.snapshot import Change, Delete, Write
from veriloop_tui.loop.suspicion import suspicions

OLD = {"a.py": b"import sys\nsys.exit(0)\n", "json.py": b"x = 1\n"}


def found(*changes: Change) -> tuple[str, ...]:
    return suspicions(changes, OLD.get, unified_diff(changes, OLD.get))


@pytest.mark.parametrize(
    "line",
    [
        "os._exit(0)",
        "from os import _exit",
        "++__import__('os').close(1)",
        "os.execv('/bin/true', ['true'])",
        "os.kill(os.getpid(), 9)",
        "raise SystemExit",
        "import pytest",
        "open('/run/veriloop/r' + 'eport', 'w')",
        "open('/proc/self/cmdline')",
        "sys.modules.clear()",
        "gc.get_objects()",
        "f.__code__ = g.__code__",
        "globals()['p' + 'q'] = f",
        "exec(text)",
        "type('E', (), {'__eq__': always})",
        "os.environ.get('CI')",
        "atexit.register(f)",
    ],
)
def test_a_known_way_to_forge_a_result_is_pointed_out_with_its_line(line: str) -> None:
    (warning,) = found(Write("a.py", f"import sys\nsys.exit(0)\n{line}\n".encode()))
    assert warning.endswith(line)


@pytest.mark.parametrize(
    "line", ["return a + b", "pattern = re.compile(text)", "cursor.execute(query)", "abort = True"]
)
def test_plain_code_is_not_suspected(line: str) -> None:
    assert found(Write("b.py", f"{line}\n".encode()), Delete("json.py")) == ()


def test_what_was_there_before_is_not_pointed_out() -> None:
    assert found(Write("a.py", b"import sys\nx = 1\nsys.exit(0)\n")) == ()


def test_the_middle_of_a_change_too_long_to_be_shown_is_looked_at() -> None:
    filler = "x = 1  # nothing\n" * MAX_CHARACTERS
    warnings = found(Write("b.py", f"{filler[:90_000]}\nos._exit(0)\n{filler[:90_000]}".encode()))
    assert warnings[0] == "The change is too long: its middle is not shown."
    assert "_exit" in warnings[1]


@pytest.mark.parametrize("content", [b"\xff\nos._exit(0)\n", b"x\n" * MAX_BYTES + b"os._exit(0)"])
def test_content_that_is_not_shown_is_looked_at_and_named(content: bytes) -> None:
    warnings = found(Write("data.bin", content))
    assert warnings[0] == "The new content of a file is not shown: data.bin"
    assert "_exit" in warnings[1]


@pytest.mark.parametrize("path", ["random.py", "src/random.py", "random/__init__.py"])
def test_a_new_module_named_like_one_of_pythons_own_is_pointed_out(path: str) -> None:
    (warning,) = found(Write(path, b"x = 1\n"))
    assert warning == f"A new file takes the place of Python's own 'random': {path}"


@pytest.mark.parametrize("path", ["json.py", "pkg/random.py", "random.txt"])
def test_other_files_are_not(path: str) -> None:
    assert found(Write(path, b"x = 1\n")) == ()
