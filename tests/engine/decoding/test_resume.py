"""An evaluated context that outlives the engine's process. The model is scripted."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.models.scripted import write_scripted_draft_gguf, write_scripted_gguf
from veriloop_tui.core.chat import ChatFinished, ChatRequest, Message, Sampling, TextDelta, Usage
from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.settings import LoadSettings

ANSWER = "".join(f"line {n} of the answer\n" for n in range(30))
QUESTION = Message("user", "Tell me all of it, and do not leave anything out. " * 8)
AGAIN = (QUESTION, Message("assistant", ANSWER), Message("user", "And once more?"))


@pytest.fixture
def load(tmp_path: Path) -> LoadSettings:
    return LoadSettings(
        write_scripted_gguf(tmp_path / "m.gguf", {}, ANSWER),
        draft=write_scripted_draft_gguf(tmp_path / "h.gguf", {}, ANSWER),
        threads=1,
        speculation="always",
        state_file=tmp_path / "kept" / "context.bin",
    )


def ask(process: EngineProcess, *messages: Message) -> Usage:
    request = ChatRequest(messages, Sampling(temperature=0.0), 1, 1000)
    *deltas, end = process.client().complete(request, threading.Event())
    assert isinstance(end, ChatFinished)
    assert "".join(one.text for one in deltas if isinstance(one, TextDelta)) == ANSWER
    return end.usage


def test_after_a_restart_only_new_tokens_are_evaluated(load: LoadSettings) -> None:
    with EngineProcess(load) as process:
        ask(process, QUESTION)
    with EngineProcess(load) as process:
        usage = ask(process, *AGAIN)

    assert usage.evaluated_tokens < 60
    assert usage.accepted_tokens > 0.8 * usage.drafted_tokens


def test_another_setting_starts_afresh(load: LoadSettings) -> None:
    with EngineProcess(load) as process:
        ask(process, QUESTION)
    changed = LoadSettings.from_json(load.to_json().replace('"type_k": "f16"', '"type_k": "f32"'))
    with EngineProcess(changed) as process:
        usage = ask(process, *AGAIN)

    assert usage.reused_tokens == 0


def test_a_damaged_context_is_not_used(load: LoadSettings) -> None:
    with EngineProcess(load) as process:
        ask(process, QUESTION)
    assert load.state_file is not None
    data = bytearray(load.state_file.read_bytes())
    data[len(data) // 2] ^= 1
    load.state_file.write_bytes(data)
    with EngineProcess(load) as process:
        usage = ask(process, *AGAIN)

    assert usage.reused_tokens == 0


def test_a_program_that_is_killed_leaves_its_context_too(load: LoadSettings) -> None:
    code = """
import sys, threading
from tests.engine.decoding.test_resume import QUESTION, ask
from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.settings import LoadSettings
process = EngineProcess(LoadSettings.from_json(sys.argv[1]))
process.start()
ask(process, QUESTION)
print(process.pid, flush=True)
threading.Event().wait()
"""
    command = [sys.executable, "-c", code, load.to_json()]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as program:
        assert program.stdout is not None
        engine = int(program.stdout.readline())
        os.kill(program.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while psutil.pid_exists(engine) and time.monotonic() < deadline:
        time.sleep(0.05)

    with EngineProcess(load) as process:
        assert ask(process, *AGAIN).evaluated_tokens < 60
