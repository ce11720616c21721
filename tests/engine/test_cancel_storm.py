"""Two hundred requests, most of them given up somewhere: nothing is left of any of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.engine.exact import SAMPLED, After, bench
from tests.models.noise import write_random_gguf
from veriloop_tui.core.chat import (
    ChatEvent,
    ChatFinished,
    ChatRequest,
    Message,
    Sampling,
    TextDelta,
)
from veriloop_tui.engine.client.client import EngineClient
from veriloop_tui.engine.decoding.checkpoints import MAX_CHECKPOINTS
from veriloop_tui.engine.decoding.native import api
from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.settings import LoadSettings

REQUESTS = 200
WARM = 60  # requests after which caches, arenas and threads are there
MORE_MEMORY = 6 << 20  # bytes; half a megabyte was measured
BASE = "A conversation that goes on and on. " * 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("storm") / "m.gguf"
    return write_random_gguf(path, "qwen35", 7, depth=0.3, layers=1)


def test_the_memory_holds_one_sequence_after_two_hundred_jobs(model: Path) -> None:
    random = np.random.default_rng(11)
    base, cancelled = tuple(BASE.encode()), 0
    with (
        bench(model, speculation="always", lookup=True, parallel=3) as busy,
        bench(model) as plain,
    ):
        memory = busy.loaded.memory
        for seed in range(REQUESTS):
            cut = int(random.integers(1, len(base)))
            prompt = (*base[:cut], *random.integers(0, 256, 30).tolist())
            job = replace(SAMPLED, seed=seed, max_tokens=25, n=int(random.choice([1, 1, 2, 5])))
            said = busy.say(prompt, job, After(int(random.integers(0, 600))))
            cancelled += "cancelled" in said.ends

        assert busy.say(base) == plain.say(base)
        handle: Any = api.llama_get_memory(memory.context)
        held = [api.llama_memory_seq_pos_max(handle, i) + 1 for i in range(memory.sequences)]
        assert held == [len(memory), 0, 0]
        assert memory.used == len(memory)
        assert len(memory.checkpoints.kept) <= MAX_CHECKPOINTS
    assert REQUESTS * 0.4 < cancelled < REQUESTS


@dataclass(frozen=True)
class Holdings:
    """What a process holds of the machine; memory in bytes."""

    memory: int
    files: int
    threads: int


def holdings(process: EngineProcess) -> Holdings:
    assert process.pid is not None
    child = psutil.Process(process.pid)
    return Holdings(child.memory_info().rss, child.num_fds(), child.num_threads())


def test_the_engines_process_holds_no_more_after_two_hundred_requests(model: Path) -> None:
    random = np.random.default_rng(12)
    settings = LoadSettings(model, n_ctx=2048, threads=1, speculation="always", parallel=2)
    with EngineProcess(settings) as process:
        client = process.client()
        first = answer(client)
        for number in range(WARM):
            one_of_many(client, random, number)
        before = holdings(process)

        ended = [one_of_many(client, random, number) for number in range(WARM, REQUESTS)]

        after = holdings(process)
        assert answer(client) == first
    # A connection that was just left may still be open.
    assert after.files <= before.files + 3
    assert after.threads <= before.threads + 3
    assert after.memory < before.memory + MORE_MEMORY
    assert ended.count("cancelled") > 40
    assert ended.count("length") > 10


def answer(client: EngineClient) -> str:
    """What the model says to one question."""
    request = ChatRequest((Message("user", BASE),), Sampling(temperature=0.0), 1, 20)
    events = client.complete(request, threading.Event())
    return "".join(one.text for one in events if isinstance(one, TextDelta))


def one_of_many(client: EngineClient, random: np.random.Generator, number: int) -> str:
    """Ask, and perhaps give up; how it ended."""
    text = BASE[: int(random.integers(1, len(BASE)))] + str(number)
    request = ChatRequest(
        (Message("user", text),),
        SAMPLED.sampling,
        number,
        int(random.integers(1, 120)),
        n=int(random.choice([1, 1, 1, 2])),
    )
    cancel = threading.Event()
    events = iter(client.complete(request, cancel))
    match int(random.integers(0, 5)):
        case 0:
            cancel.set()
        case 1:
            threading.Timer(float(random.uniform(0, 0.05)), cancel.set).start()
        case 2:
            next(events)
            cancel.set()
        case 3:
            next(events)
            return _walk_away(events)
        case _:
            pass
    *_, end = events
    assert isinstance(end, ChatFinished)
    return end.finish_reason


def _walk_away(events: Iterator[ChatEvent]) -> str:
    """Close the connection without a word."""
    assert hasattr(events, "close")
    events.close()
    return "closed"
