"""`quant compare` against llama-perplexity, on the same files, text, batch shape and threads.

`python -m benchmarks.bench_quant PEERS [ROUNDS]`: PEERS is the folder of `benchmarks.peer`. SmolLM2
as F16 and four quants of it are made, then measured by both in turns: a base pass and four passes
against it by llama-perplexity, and one `compare` by us, in each of our ways. Wall time from start
to end, and the largest proportional set size of all processes together.
"""

import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from benchmarks.peer import build
from quant.corpora.corpora import SHIPPED
from quant.making.make import make
from quant.making.plan import plan
from quant.making.target import Recipe, parse_targets
from tests.quant.files import smollm_path

TYPES = ("Q8_0", "Q6_K", "Q4_K_M", "Q2_K")
THREADS = "2"
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall time in seconds, largest memory in bytes."""

    seconds: float
    memory: int


def made(folder: Path) -> tuple[Path, list[Path]]:
    """The base and its quants."""
    never, base = threading.Event(), smollm_path()
    for names in ("F16", ",".join(TYPES)):
        recipe = Recipe(requantise=True)
        wanted = plan(base, folder, parse_targets(names), recipe, "refuse", never)
        list(make(wanted, never))
        if names == "F16":
            (base,) = folder.glob("*F16.gguf")
    return base, [next(folder.glob(f"*{name}.gguf")) for name in TYPES]


def run(command: list[str]) -> Cost:
    """Run a command; it must end well."""
    begun = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most = 0
    while child.poll() is None:
        most = max(most, memory(child.pid))
        time.sleep(POLL_SECONDS)
    seconds = time.perf_counter() - begun
    if child.returncode:
        raise SystemExit(f"{command[0]} ended with {child.returncode}")
    return Cost(seconds, most)


def memory(pid: int) -> int:
    """Proportional set size of a process and its children."""
    whole = 0
    with suppress(psutil.Error):
        top = psutil.Process(pid)
        for one in (top, *top.children(recursive=True)):
            with suppress(psutil.Error):
                whole += one.memory_full_info().pss
    return whole


def peer(programs: Path, folder: Path, base: Path, quants: list[Path]) -> Cost:
    """All passes of llama-perplexity."""
    logits, text = folder / "base.logits", SHIPPED["prose"][1]
    common = ["-c", "512", "-t", THREADS, "--kl-divergence-base", str(logits)]
    program = str(programs / "llama-perplexity")
    costs = [run([program, "-m", str(base), "-f", str(text), *common])]
    costs += [run([program, "-m", str(one), "--kl-divergence", *common]) for one in quants]
    logits.unlink()
    return Cost(sum(one.seconds for one in costs), max(one.memory for one in costs))


def ours(folder: Path, base: Path, quants: list[Path], mode: str) -> Cost:
    """One comparison, nothing known before."""
    with tempfile.TemporaryDirectory(dir=folder) as records:
        options = ["--threads", THREADS, "--no-speeds", "--mode", mode, "--records", records]
        command = [sys.executable, "-m", "quant", "compare", str(base), *map(str, quants)]
        return run([*command, *options])


def main() -> None:
    """Print a line per way."""
    programs = build(Path(sys.argv[1]))
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base, quants = made(folder)
        theirs: list[Cost] = []
        mine: dict[str, list[Cost]] = {"lockstep": [], "windows": [], "file": []}
        for _ in range(rounds):
            theirs.append(peer(programs, folder, base, quants))
            for mode, costs in mine.items():
                costs.append(ours(folder, base, quants, mode))
        shown("llama-perplexity", theirs, theirs)
        for mode, costs in mine.items():
            shown(mode, costs, theirs)


def shown(name: str, costs: list[Cost], theirs: list[Cost]) -> None:
    """Medians, and the median ratio of rounds."""
    times = [one.seconds for one in costs]
    ratio = median(one.seconds / other.seconds for one, other in zip(costs, theirs, strict=True))
    most = median(one.memory / other.memory for one, other in zip(costs, theirs, strict=True))
    print(
        f"{name:18} {median(times):6.1f} s ({min(times):.1f}-{max(times):.1f}), ratio {ratio:.2f}; "
        f"{median(one.memory for one in costs) / 2**20:6.0f} MiB, ratio {most:.2f}"
    )


if __name__ == "__main__":
    main()
