"""An engine that is killed while it works: the client learns of it, and a restart heals it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.models.noise import write_random_gguf
from veriloop_tui.core.chat import (
    ChatEvent,
    ChatFinished,
    ChatRequest,
    Message,
    Sampling,
    TextDelta,
)
from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import EngineCrashed

NEVER = threading.Event()


def asking(text: str, max_tokens: int = 20) -> ChatRequest:
    return ChatRequest((Message("user", text),), Sampling(temperature=0.0), 1, max_tokens)


def answer(process: EngineProcess) -> ChatFinished:
    *_, end = process.client().complete(asking("hello"), NEVER)
    assert isinstance(end, ChatFinished)
    return end


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """An engine whose prefills take seconds; it runs again after each test."""
    path = tmp_path_factory.mktemp("slow") / "model.gguf"
    write_random_gguf(path, "llama", 7, width=512, blocks=6, n_ctx=8192)
    with EngineProcess(LoadSettings(path, n_ctx=8192, threads=1, speculation="off")) as process:
        yield process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_an_engine_killed_at_work_is_a_typed_error_at_once_and_the_next_request_works(
    slow: EngineProcess, phase: str, number: signal.Signals
) -> None:
    killed = Killer(slow, number, in_prefill=phase == "prefill")
    request = asking("x" * 8000 if phase == "prefill" else "go on", 4000)

    seen: list[ChatEvent] = []
    events = iter(slow.client().complete(request, NEVER))
    if phase == "decode":
        assert isinstance(next(events), TextDelta)
        killed.now()
    with pytest.raises(EngineCrashed, match=number.name):
        seen.extend(events)

    assert phase == "decode" or not seen
    assert time.monotonic() - killed.at < 5  # within a second, with room for a busy machine
    killed.join()
    slow.restart()
    assert answer(slow).usage.completion_tokens > 0


class Killer:
    """Kills an engine once, on demand or when it has begun to evaluate a prompt."""

    def __init__(self, process: EngineProcess, number: signal.Signals, *, in_prefill: bool) -> None:
        assert process.pid is not None
        self._child, self._number = psutil.Process(process.pid), number
        self.at = 0.0
        self._thread = threading.Thread(target=self._wait_for_work)
        if in_prefill:
            self._thread.start()

    def now(self) -> None:
        if not self.at:
            self.at = time.monotonic()
            os.kill(self._child.pid, self._number)

    def join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()

    def _wait_for_work(self) -> None:
        """Reading a request takes no such time on a processor; evaluating 8,000 tokens does."""
        begun = self._child.cpu_times().user
        while self._child.cpu_times().user < begun + 0.3:
            time.sleep(0.01)
        self.now()
