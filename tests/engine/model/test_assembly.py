"""What is loaded when memory runs out, in processes whose memory is bounded."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.models.noise import write_random_draft_gguf, write_random_gguf
from veriloop_tui.core.chat import ChatFinished, Sampling
from veriloop_tui.engine.decoding.decode import Decoder
from veriloop_tui.engine.decoding.llama import Model
from veriloop_tui.engine.decoding.memory import Memory, Shape
from veriloop_tui.engine.gguf.facts import read_facts
from veriloop_tui.engine.job import Job
from veriloop_tui.engine.model.assembly import SpeculationOff, assemble, pace_for
from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.settings import LoadSettings

SPACE = 64 << 20

# Address space beyond what the process has before it loads anything is bounded.
BOUNDED = """
import json, resource, sys
from pathlib import Path
import psutil
from veriloop_tui.engine.model.assembly import assemble
from veriloop_tui.engine.gguf.facts import read_facts
from veriloop_tui.engine.decoding.llama import silence_logs
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import ModelFileInvalid

load, room = LoadSettings.from_json(sys.argv[1]), int(sys.argv[2])
silence_logs()
facts = read_facts(load.model)
limit = psutil.Process().memory_info().vms + facts.file_size + room
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    parts = assemble(facts, load, lambda: True)
except ModelFileInvalid as error:
    print(json.dumps({"error": str(error)}))
else:
    memory = parts.decoder.memory
    memory.advance((1,))
    print(json.dumps({"n_ctx": memory.n_ctx, "notices": parts.notices}))
"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose context of 32,768 tokens takes 512 MiB."""
    path = tmp_path_factory.mktemp("wide") / "wide.gguf"
    return write_random_gguf(path, "llama", 1, n_ctx=32_768, width=512, blocks=8)


def loaded(load: LoadSettings, room: int) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED, load.to_json(), str(room)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_where_memory_runs_out_the_context_shrinks_step_by_step_and_says_so(wide: Path) -> None:
    found = loaded(LoadSettings(wide, threads=1, speculation="off"), room=SPACE + (330 << 20))

    assert 2_048 <= found["n_ctx"] < 32_768
    assert any("memory ran out" in notice for notice in found["notices"])


def test_what_cannot_be_loaded_at_its_smallest_is_an_error_and_no_crash(wide: Path) -> None:
    found = loaded(LoadSettings(wide, threads=1, speculation="off"), room=8 << 20)

    assert "context" in found["error"]


def test_an_engine_that_is_killed_while_it_loads_is_loaded_smaller(wide: Path) -> None:
    process = EngineProcess(LoadSettings(wide, threads=1, speculation="off"))

    def as_the_system_does_when_memory_runs_out() -> None:
        while process.pid is None:
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)

    killer = threading.Thread(target=as_the_system_does_when_memory_runs_out)
    killer.start()
    try:
        process.start()
        facts = process.client().facts()
    finally:
        killer.join()
        process.stop()

    assert facts.n_ctx == 16_384
    assert any("memory ran out" in notice for notice in facts.notices)


@pytest.mark.parametrize("bad", [b"", b"GGUF", b"no model at all" * 100])
def test_a_draft_head_that_cannot_be_read_is_refused_and_the_engine_works(
    tmp_path: Path, tiny_llama: Path, bad: bytes
) -> None:
    head = tmp_path / "head.gguf"
    head.write_bytes(bad)
    load = LoadSettings(
        tiny_llama, draft=head, threads=1, state_file=tmp_path / "context.bin", lookup=False
    )
    with EngineProcess(load) as process:
        facts = process.client().facts()

    assert any("draft head is not used" in notice for notice in facts.notices)


def test_an_architecture_that_takes_no_tokens_back_is_not_speculated_with(tmp_path: Path) -> None:
    settings = LoadSettings(write_random_gguf(tmp_path / "m.gguf", "qwen35", 7), threads=1)
    model = Model(settings.model, settings, lambda: True, heads=False)
    # As llama.cpp makes it where it has no snapshots of the recurrent state.
    memory = Memory(model, settings, Shape(512, 1, rollback=0))
    decoder = Decoder(memory, model.vocabulary, lookup=True)

    for speculation in ("auto", "always"):
        with pytest.raises(SpeculationOff, match="cannot take back"):
            pace_for(replace(settings, speculation=speculation), decoder)

    decoder.close()
    model.close()


def test_a_head_that_cannot_pay_is_given_back_and_answers_come_without_it(tmp_path: Path) -> None:
    settings = LoadSettings(
        write_random_gguf(tmp_path / "m.gguf", "qwen35", 7),
        draft=write_random_draft_gguf(tmp_path / "h.gguf", "qwen35", 7),
        threads=1,
        speculation="always",
    )
    parts = assemble(read_facts(settings.model), settings, lambda: True)
    assert parts.decoder.head is not None

    parts.drop_head()
    *_, end = parts.decoder.run(Job((72, 105), "Hi", Sampling(), 1, 5), lambda: False)

    assert isinstance(end, ChatFinished)
    assert parts.decoder.head is None
    parts.close()
