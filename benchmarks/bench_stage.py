"""What staging and the sandbox add to one command, as a ratio to the bare command.

Run: python benchmarks/bench_stage.py [FILES ...]   (default 1000 20000)
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from veriloop_tui.contract.job import Tier
from veriloop_tui.contract.sandbox import Host, choose_sandbox
from veriloop_tui.contract.verify import ContractVerifier
from veriloop_tui.core.obligation import Obligation, Ranked
from veriloop_tui.core.snapshot import Change, Write
from veriloop_tui.store.staging.ladder import WantedRung, choose_stager
from veriloop_tui.wiring.clock import SystemClock

COMMAND = ("/bin/sh", "-c", "cat f0/0.py >/dev/null; echo written >f0/product")
RUNS = 7


def make_files(root: Path, count: int) -> None:
    for number in range(count):
        folder = root / f"f{number // 100}"
        if number % 100 == 0:
            folder.mkdir()
        (folder / f"{number}.py").write_text(f"VALUE = {number}\n" * 100)


def median_of(action: Callable[[], object], runs: int) -> float:
    def timed() -> float:
        started = time.perf_counter()
        action()
        return time.perf_counter() - started

    action()
    return statistics.median(timed() for _ in range(runs))


def bench(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, data = Path(folder).resolve() / "work", Path(folder).resolve() / "data"
        root.mkdir()
        data.mkdir()
        make_files(root, count)
        host = Host(os.environ["PATH"], Path.home(), (data,))
        changes: tuple[Change, ...] = tuple(
            Write(f"f0/{number}.py", b"VALUE = 0\n") for number in range(3)
        )
        bare = median_of(lambda: subprocess.run(COMMAND, cwd=root, check=True), RUNS)
        print(f"{count:>6} files: bare command {bare * 1000:.1f} ms")
        rungs: tuple[WantedRung, ...] = ("overlay", "copy")
        tiers: tuple[Tier, ...] = ("best", "reduced", "none")
        for rung in rungs:
            stager, _ = choose_stager(root, data / "scratch", rung)
            for tier in tiers if rung == "overlay" else tiers[:1]:
                verifier = ContractVerifier(
                    (Obligation("o", COMMAND, "exit"),),
                    stager,
                    choose_sandbox(tier, host, SystemClock()),
                    lambda: 0,
                    lambda: 0,
                    SystemClock(),
                )

                def cycle(verifier: ContractVerifier = verifier) -> None:
                    measured = verifier.measure(changes, None, threading.Event())
                    assert isinstance(measured, Ranked), measured

                took = median_of(cycle, RUNS if rung == "overlay" else 1)
                print(f"        {rung:>8} + {tier:<8} {took * 1000:8.1f} ms  x{took / bare:.1f}")


if __name__ == "__main__":
    for size in [int(word) for word in sys.argv[1:]] or [1000, 20000]:
        bench(size)
