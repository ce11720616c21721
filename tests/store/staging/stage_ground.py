"""A small workspace with everything that a stage must keep, and ways to look at one."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from veriloop_tui.core.ports import Stage


def make_workspace(root: Path) -> Path:
    """Files, an empty folder, an executable, links, an ignored folder, and a read-only file."""
    (root / "pkg" / "inner").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / "pkg" / "code.py").write_text("VALUE = 1\n")
    (root / "pkg" / "inner" / "deep.txt").write_text("deep")
    (root / "tool.sh").write_text("#!/bin/sh\necho tool\n")
    (root / "tool.sh").chmod(0o750)
    (root / "locked.txt").write_text("locked")
    (root / "locked.txt").chmod(0o444)
    (root / ".venv" / "bin" / "ignored").write_text("ignored")
    (root / "link").symlink_to("pkg/code.py")
    (root / "dangling").symlink_to("nowhere")
    os.utime(root / "pkg" / "code.py", ns=(1_700_000_000_123_456_789,) * 2)
    return root


def describe(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, modification time and bytes of every path."""
    found = {}
    for path in sorted(root.rglob("*")):
        facts = path.lstat()
        content = b""
        if stat.S_ISLNK(facts.st_mode):
            content = os.fsencode(path.readlink())
        elif stat.S_ISREG(facts.st_mode):
            content = path.read_bytes()
        found[str(path.relative_to(root))] = (facts.st_mode, facts.st_mtime_ns, content)
    return found


def run_in(stage: Stage, line: str) -> str:
    """What a shell line prints in the stage; it must succeed."""
    done = subprocess.run(
        stage.enter(("/bin/sh", "-c", line)),
        cwd=stage.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
