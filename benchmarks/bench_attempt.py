"""The program's own time per attempt, outside model and tests, at 1,000 and 20,000 files.

Run: `python -m benchmarks.bench_attempt [FILES…]`. Everything is real (store, overlay, sandbox,
promotion, ledger) but the model, which answers at once from a list, and the tests, which are a
shell script of about 20 ms. Each second answer breaks a check and is rejected, the others commit.

`program` is the attempt from end to end, promotion included, less what the sandboxed commands
took; `whole` is all of it; `bare` is the script by itself, outside the sandbox.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from veriloop_tui.contract.trust import trust
from veriloop_tui.core.chat import (
    ChatEvent,
    ChatFinished,
    ChatRequest,
    ModelFacts,
    TextDelta,
    Timings,
    Usage,
)
from veriloop_tui.core.event import AttemptEnded
from veriloop_tui.core.ports import Cancel
from veriloop_tui.core.transition import Decision
from veriloop_tui.proposer.propose import DEFAULT_SAMPLING
from veriloop_tui.wiring.running import EveryCommit, Loaded, run
from veriloop_tui.wiring.workspace import Flags, locate, opened

LIMITS = {1_000: 0.150, 20_000: 0.500}
GOALS = 12

CHECK = """\
#!/bin/sh
# Writes one test case for each goal: passed where its line says done.
out="$1"; bad=0
cases=""
while read -r name state; do
  if [ "$state" = done ]; then
    cases="$cases<testcase classname='goals' name='$name'/>"
  else
    bad=$((bad + 1))
    cases="$cases<testcase classname='goals' name='$name'><failure message='open'/></testcase>"
  fi
done <<END
$(cat goals/*)
END
total=$(cat goals/* | grep -c .)
counts="tests='$total' failures='$bad' errors='0'"
echo "<testsuites><testsuite $counts>$cases</testsuite></testsuites>" > "$out"
[ "$bad" = 0 ]
"""

CONTRACT = """\
version = 1
[budget]
attempts = 1000
[[obligation]]
name = "goals"
run = ["sh", "tests/check.sh", "{report}"]
report = "junit"
"""


class Reciter:
    """A model that closes one goal after the other, with a regression before each."""

    def __init__(self) -> None:
        self.asked = 0

    def facts(self) -> ModelFacts:
        """A model large enough for SEARCH/REPLACE blocks."""
        return ModelFacts(
            name="reciter",
            architecture="none",
            path="",
            file_size=0,
            parameters=7_000_000_000,
            quant="",
            bpw=0.0,
            n_ctx=8192,
            file_digest="",
            template_hash="",
        )

    def complete(self, request: ChatRequest, cancel: Cancel) -> Iterator[ChatEvent]:
        """Alternately a change that trades one goal for another, and one that closes a goal."""
        goal, kind = divmod(self.asked, 2)
        self.asked += 1
        good = f"goal{goal} done"
        old, new = f"goal{goal} open", good if kind else f"{good}\nextra{goal} open"
        yield TextDelta(f"goals/{goal}\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n")
        yield ChatFinished("stop", Usage(1, 1, 0), Timings(0.0, 0.0))


def make_workspace(root: Path, files: int) -> None:
    """Goals, their check, and `files` small files in folders of a hundred."""
    (root / "tests").mkdir(parents=True)
    (root / "goals").mkdir()
    for number in range(GOALS):
        # Each in a file of its own: a file that is promoted twice within a second has to wait, so
        # that its modification time can move on by one.
        (root / f"goals/{number}").write_text(f"goal{number} open\n")
    (root / "tests/check.sh").write_text(CHECK)
    (root / "veriloop.toml").write_text(CONTRACT)
    for number in range(files):
        path = root / f"lib{number // 100}" / f"module{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"VALUE = {number}\n" * 20)
    long_ago = time.time() - 100
    for path in root.rglob("*"):
        os.utime(path, (long_ago, long_ago))


def bare_seconds(root: Path, scratch: Path) -> float:
    """The median time of the script by itself."""
    times = []
    for _ in range(10):
        began = time.perf_counter()
        command = ("sh", "tests/check.sh", str(scratch / "bare.xml"))
        subprocess.run(command, cwd=root, check=False)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measure(files: int) -> bool:
    """Print one line per kind of attempt; whether the median is within its limit."""
    with tempfile.TemporaryDirectory(prefix="veriloop-bench-") as folder:
        root = Path(folder).resolve() / "work"
        make_workspace(root, files)
        time.sleep(2.1)  # Files younger than that are hashed again at each scan.
        os.environ["VERILOOP_DATA_DIR"] = f"{folder}/data"
        location = locate(root, Flags())
        trust(location.trust_file, location.contract())
        attempts: list[tuple[AttemptEnded, float, float]] = []
        with opened(location) as workspace:
            events = run(
                workspace,
                location.contract(),
                Loaded(Reciter(), DEFAULT_SAMPLING),
                "close the goals",
                1,
                EveryCommit(),
                threading.Event(),
            )
            began, in_commands = time.perf_counter(), 0.0
            for event in events:
                if isinstance(event, AttemptEnded):
                    whole = time.perf_counter() - began
                    commands = event.spent.verifier_time - in_commands
                    attempts.append((event, whole - commands, whole))
                    in_commands = event.spent.verifier_time
                    began = time.perf_counter()
        bare = bare_seconds(root, Path(folder))
    within = True
    for decision in (Decision.RULE_REJECTED, Decision.COMMITTED):
        # The first attempt's time holds the baseline.
        chosen = [(own, whole) for event, own, whole in attempts[1:] if event.decision is decision]
        program = statistics.median(own for own, _ in chosen)
        whole = statistics.median(all_of_it for _, all_of_it in chosen)
        limit = LIMITS.get(files)
        within &= limit is None or program < limit
        print(
            f"{files:>6} files  {decision.value:<14} program {program * 1000:6.1f} ms"
            f"  whole {whole * 1000:6.1f} ms  bare {bare * 1000:5.1f} ms"
            f"  whole/bare {whole / bare:5.1f}"
            + (f"  program/limit {program / limit:4.2f}" if limit else "")
        )
    return within


def main() -> None:
    """Measure each size named, or the two that have a limit."""
    sizes = [int(word) for word in sys.argv[1:]] or list(LIMITS)
    results = [measure(size) for size in sizes]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
