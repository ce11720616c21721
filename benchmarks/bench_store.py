"""Snapshots beside git in one run: `python benchmarks/bench_store.py [FILES]`.

Prints milliseconds and ratios; trust the ratios. Git is used here only, as the yardstick.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from veriloop_tui.core.snapshot import Candidate, Write
from veriloop_tui.store.database import Database
from veriloop_tui.store.snapshots import WorkspaceSnapshots

_SETTLE_SECONDS = 2.5
_TURNS = 5


def make_workspace(root: Path, count: int) -> None:
    """Small files in directories of about a hundred, with an ordinary `.gitignore`."""
    root.mkdir()
    (root / ".gitignore").write_text("*.log\nbuild/\n.env\n*.tmp\n/dist/\n")
    for number in range(count):
        folder = root / f"package{number // 1000}" / f"part{number // 100 % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        body = "".join(f"def f{number}_{i}(x):\n    return x + {i}\n" for i in range(number % 100))
        (folder / f"module{number}.py").write_text(f"# {number}\n{body}")


def timed(action: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000


def median(action: Callable[[], object]) -> float:
    """Median milliseconds of some calls."""
    return statistics.median(timed(action) for _ in range(_TURNS))


def git(root: Path, *arguments: str) -> None:
    """One git command in the workspace."""
    subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "workspace"
        make_workspace(root, count)
        time.sleep(_SETTLE_SECONDS)
        home = Path(folder) / "home"
        database = Database(Path(folder) / "data")
        snapshots = WorkspaceSnapshots(root, database, home=home)
        first = timed(snapshots.take)
        base = snapshots.take()
        again = median(snapshots.take)
        drift = median(lambda: snapshots.drift(base))
        numbers = iter(range(1000))

        def candidate() -> None:
            edits = (Write(f"package0/part0/new{next(numbers)}.py", b"x = 1\n"),)
            snapshots.candidate(Candidate(base, edits))

        candidate_time = median(candidate)
        database.close()

        def fresh() -> None:
            with Database(Path(folder) / "data") as reopened:
                WorkspaceSnapshots(root, reopened, home=home).take()

        fresh_time = median(fresh)
        git(root, "init", "-q")
        git_add = timed(lambda: git(root, "add", "-A"))
        git_status = median(lambda: git(root, "status", "--porcelain"))
    print(f"{count} files, milliseconds (median of {_TURNS}, the first snapshot once)")
    print(
        f"first snapshot        {first:8.0f}   git add -A {git_add:8.0f}   x{first / git_add:.2f}"
    )
    for name, value in (("take, no change", again), ("drift", drift), ("new process", fresh_time)):
        ratio = value / git_status
        print(f"{name:<21} {value:8.0f}   git status {git_status:8.0f}   x{ratio:.2f}")
    print(f"candidate             {candidate_time:8.0f}")
    print(f"one attempt (3 drifts and a candidate) {3 * drift + candidate_time:8.0f}")


if __name__ == "__main__":
    main()
