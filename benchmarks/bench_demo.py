"""How reliably and how fast the demo reaches rank zero, over many seeds.

Run: `python -m benchmarks.bench_demo [SEEDS]` (default 20). Each run is `veriloop demo --headless`
from a fresh process in a fresh workspace, with the real SmolLM2-135M and real pytest runs. The
exit code is 0 if at least 19 of 20 runs reach rank zero and their median takes less than 30 s.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

COMPLETE_SHARE = 19 / 20
MEDIAN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Run:
    """One demo: its end, what it took, and how many candidates were rejected before a commit."""

    outcome: str
    attempts: int
    commits: int
    rejected_between: int
    seconds: float


def demo(seed: int) -> Run:
    """Run the demo once; seconds from start to exit."""
    began = time.perf_counter()
    done = subprocess.run(
        (
            sys.executable,
            *("-c", "from veriloop_tui.cli import main; main()"),
            *("demo", "--headless", "--json", "--seed", str(seed)),
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - began
    events = [json.loads(line) for line in done.stdout.splitlines()]
    if not events or events[-1]["type"] != "run-ended":
        sys.exit(f"The demo with seed {seed} did not end as a run: {done.stderr[-500:]}")
    decisions = [e["decision"] for e in events if e["type"] == "attempt-ended"]
    last = max((i for i, d in enumerate(decisions) if d == "committed"), default=0)
    ended = events[-1]
    return Run(
        ended["outcome"],
        ended["attempts"],
        ended["commits"],
        sum(decision != "committed" for decision in decisions[:last]),
        seconds,
    )


def main() -> None:
    """Run the seeds from 1 up, print a line for each and the summary."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    runs: list[Run] = []
    for seed in range(1, count + 1):
        run = demo(seed)
        runs.append(run)
        print(
            f"seed {seed:>3}  {run.outcome:<13} {run.attempts:>2} attempts  {run.commits} commits"
            f"  {run.rejected_between:>2} rejected between  {run.seconds:5.1f} s",
            flush=True,
        )
    complete = sum(run.outcome == "complete" for run in runs)
    seconds = statistics.median(run.seconds for run in runs)
    print(
        f"complete {complete}/{count}, with rejections between commits"
        f" {sum(run.rejected_between > 0 for run in runs)}/{count},"
        f" median {statistics.median(run.attempts for run in runs):.0f} attempts"
        f" (at most {max(run.attempts for run in runs)}), median {seconds:.1f} s,"
        f" median/limit {seconds / MEDIAN_SECONDS:.2f}"
    )
    sys.exit(0 if complete >= COMPLETE_SHARE * count and seconds < MEDIAN_SECONDS else 1)


if __name__ == "__main__":
    main()
