"""The child process and its client: whatever happens to the child, this process lives."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.scripted_gguf import write_random_gguf
from veriloop_tui.core.chat import (
    ChatFinished,
    ChatRequest,
    Message,
    Sampling,
    TextDelta,
    Usage,
)
from veriloop_tui.engine.client.client import Endpoint, EngineClient
from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import (
    ContextTooLong,
    EngineCrashed,
    EngineRefused,
    EngineStartFailed,
    ModelFileInvalid,
    ModelNotFound,
)

NEVER = threading.Event()


def asking(text: str, max_tokens: int = 12) -> ChatRequest:
    return ChatRequest((Message("user", text),), Sampling(temperature=0.0), 1, max_tokens)


def complete(client: EngineClient, request: ChatRequest) -> tuple[str, ChatFinished]:
    *deltas, end = client.complete(request, NEVER)
    assert isinstance(end, ChatFinished)
    return "".join(one.text for one in deltas if isinstance(one, TextDelta)), end


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[EngineProcess]:
    """An engine of its own for tests that kill it. Wide, so that a long answer takes a while."""
    model = write_random_gguf(tmp_path / "tiny.gguf", "llama", 7, width=256, blocks=8)
    with EngineProcess(LoadSettings(model, threads=1)) as process:
        yield process


def test_the_client_gives_facts_deltas_and_one_end(engine: EngineProcess) -> None:
    client = engine.client()

    text, end = complete(client, asking("Write a haiku about rain."))

    assert client.facts().parameters == 134_515_008
    assert text
    assert end.finish_reason == "length"
    assert end.usage.completion_tokens == 12
    assert end.timings.predicted_ms > 0


def test_a_prompt_that_is_too_long_is_a_typed_error(engine: EngineProcess) -> None:
    with pytest.raises(ContextTooLong) as caught:
        complete(engine.client(), asking("word " * 6000))

    assert caught.value.n_ctx == 4096


def test_a_refusal_is_a_typed_error(engine: EngineProcess) -> None:
    with pytest.raises(EngineRefused) as caught:
        complete(engine.client(), asking("x", max_tokens=-1))

    assert caught.value.status == 400


def test_a_cancel_from_another_thread_ends_a_prefill_and_the_next_request_works(
    engine: EngineProcess,
) -> None:
    client, cancel = engine.client(), threading.Event()
    threading.Timer(0.3, cancel.set).start()

    events = list(client.complete(asking("sun and " * 1900, max_tokens=2000), cancel))

    assert isinstance(events[-1], ChatFinished)
    assert events[-1].finish_reason == "cancelled"
    assert complete(client, asking("Hello"))[1].finish_reason in ("stop", "length")


def test_a_cancel_between_two_deltas_ends_the_answer(engine: EngineProcess) -> None:
    cancel = threading.Event()
    events = engine.client().complete(asking("Tell me a long story.", 500), cancel)

    assert isinstance(next(events), TextDelta)
    cancel.set()
    rest = list(events)

    assert isinstance(rest[-1], ChatFinished)
    assert rest[-1].finish_reason == "cancelled"


def test_a_client_that_stops_listening_closes_its_connection(engine: EngineProcess) -> None:
    client = engine.client()
    events = client.complete(asking("Tell me a long story.", 2000), NEVER)
    next(events)
    assert hasattr(events, "close")
    events.close()

    assert complete(client, asking("Hello"))[1].finish_reason in ("stop", "length")


def test_a_killed_child_is_a_crash_and_after_a_restart_requests_work(tiny: EngineProcess) -> None:
    client = tiny.client()
    events = client.complete(asking("go on", 3000), NEVER)
    next(events)
    assert tiny.pid is not None
    os.kill(tiny.pid, signal.SIGKILL)

    with pytest.raises(EngineCrashed) as caught:
        list(events)
    assert "SIGKILL" in caught.value.problem
    with pytest.raises(EngineCrashed):
        client.facts()

    tiny.restart()
    assert complete(client, asking("hello"))[1].usage.completion_tokens > 0


def test_an_abort_of_native_code_is_a_crash_that_names_the_signal(tiny: EngineProcess) -> None:
    events = tiny.client().complete(asking("go on", 3000), NEVER)
    next(events)
    assert tiny.pid is not None
    os.kill(tiny.pid, signal.SIGABRT)

    with pytest.raises(EngineCrashed, match="SIGABRT"):
        list(events)


def test_a_child_that_hangs_can_be_cancelled_and_stopped(tiny: EngineProcess) -> None:
    cancel = threading.Event()
    events = tiny.client().complete(asking("go on", 3000), cancel)
    next(events)
    assert tiny.pid is not None
    os.kill(tiny.pid, signal.SIGSTOP)
    cancel.set()

    *_, end = events

    assert isinstance(end, ChatFinished)
    assert end.finish_reason == "cancelled"


def test_stopping_removes_the_child_and_its_socket(tiny_llama: Path) -> None:
    with EngineProcess(LoadSettings(tiny_llama)) as process:
        folder, pid = process.socket_path.parent, process.pid
        assert pid is not None

    assert not folder.exists()
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.block_count", 0),
        ("llama.block_count", 9999),
        ("llama.attention.head_count_kv", 3),
    ],
)
def test_a_header_that_would_abort_llama_cpp_is_refused_before_a_child_is_started(
    tiny_llama: Path, tmp_path: Path, key: str, value: int
) -> None:
    data = tiny_llama.read_bytes()
    at = data.index(key.encode()) + len(key) + 4
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(data[:at] + struct.pack("<I", value) + data[at + 4 :])
    process = EngineProcess(LoadSettings(bad))

    with pytest.raises(ModelFileInvalid):
        process.start()

    assert process.pid is None


def test_a_missing_model_is_reported_as_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        EngineProcess(LoadSettings(tmp_path / "absent.gguf")).start()


@pytest.mark.parametrize("tensor", [b"blk.0.attn_q.weight", b"output_norm.weight"])
def test_what_only_llama_cpp_can_find_is_told_by_the_childs_last_words(
    tiny_llama: Path, tmp_path: Path, tensor: bytes
) -> None:
    renamed = tmp_path / "renamed.gguf"
    renamed.write_bytes(tiny_llama.read_bytes().replace(tensor, b"x" * len(tensor), 1))
    process = EngineProcess(LoadSettings(renamed))

    with pytest.raises(EngineStartFailed) as caught:
        process.start()
    process.stop()

    assert tensor.decode() in caught.value.log
    assert process.pid is None


def test_an_unknown_architecture_is_told_by_the_childs_last_words(
    tiny_llama: Path, tmp_path: Path
) -> None:
    unknown = tmp_path / "unknown.gguf"
    unknown.write_bytes(tiny_llama.read_bytes().replace(b"llama", b"lambd"))
    process = EngineProcess(LoadSettings(unknown))

    with pytest.raises(EngineStartFailed, match="lambd"):
        process.start()
    process.stop()


def test_a_start_can_be_given_up(tiny_llama: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    process = EngineProcess(LoadSettings(tiny_llama))

    with pytest.raises(EngineStartFailed, match="cancelled"):
        process.start(cancel)
    process.stop()

    assert process.pid is None


def test_a_server_that_is_not_there_is_a_crash(tmp_path: Path) -> None:
    client = EngineClient(Endpoint(socket_path=tmp_path / "none.sock"))

    with pytest.raises(EngineCrashed):
        client.facts()
    with pytest.raises(EngineCrashed):
        complete(client, asking("hello"))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", EngineCrashed),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ndata: 5\n\n", EngineCrashed),
        (b"HTTP/1.1 500 Oh\r\ncontent-length: 4\r\n\r\noops", EngineRefused),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\ndata: {", EngineCrashed),
        (b"nonsense\r\n\r\n", EngineCrashed),
        (b"", EngineCrashed),
    ],
)
def test_a_server_that_speaks_nonsense_ends_in_a_typed_error(
    tmp_path: Path, answer: bytes, error: type[Exception]
) -> None:
    with one_answer(tmp_path / "odd.sock", answer) as client, pytest.raises(error):
        complete(client, asking("hello"))


@contextmanager
def one_answer(path: Path, answer: bytes) -> Iterator[EngineClient]:
    """A server of another kind, which gives one answer whatever it is asked."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield EngineClient(Endpoint(socket_path=path, model="veriloop-e2"))
        thread.join()


def response(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def test_another_servers_models_give_the_facts_that_it_tells(tmp_path: Path) -> None:
    models = [{"id": "other"}, {"id": "veriloop-e2", "max_model_len": 131_072}]
    body = json.dumps({"object": "list", "data": models}).encode()

    with one_answer(tmp_path / "vllm.sock", response(body)) as client:
        facts = client.facts()

    assert (facts.name, facts.n_ctx, facts.file_digest) == ("veriloop-e2", 131_072, "")


def test_another_servers_answer_without_timings_is_understood(tmp_path: Path) -> None:
    events: list[dict[str, object]] = [
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"delta": {"content": "Hel"}, "finish_reason": None}]},
        {"choices": [{"delta": {"content": "lo"}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}},
    ]
    lines = [b": ping", *(b"data: " + json.dumps(one).encode() for one in events), b"data: [DONE]"]

    with one_answer(tmp_path / "vllm.sock", response(b"\r\n\r\n".join(lines) + b"\n")) as client:
        text, end = complete(client, asking("hello"))

    assert text == "Hello"
    assert end.usage == Usage(prompt_tokens=7, completion_tokens=2, reused_tokens=0)


def test_an_answer_that_breaks_off_is_a_crash(tmp_path: Path) -> None:
    body = b'data: {"choices": [{"delta": {"content": "Hel"}}]}\n\n'

    with one_answer(tmp_path / "cut.sock", response(body)) as client:
        events = client.complete(asking("hello"), NEVER)
        assert next(events) == TextDelta("Hel")
        with pytest.raises(EngineCrashed, match="broke off"):
            next(events)


PARENT = """
import sys, time
from pathlib import Path
from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.settings import LoadSettings
engine = EngineProcess(LoadSettings(Path(sys.argv[1])))
engine.start()
print(engine.pid, engine.socket_path.parent, flush=True)
time.sleep(600)
"""


def test_the_child_dies_with_its_parent(tiny_llama: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tiny_llama)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid, folder = parent.stdout.readline().split()
    child = psutil.Process(int(pid))
    parent.kill()
    parent.wait()
    parent.stdout.close()

    psutil.wait_procs([child], timeout=30)

    assert not child.is_running()
    for left in Path(folder).iterdir():
        left.unlink()
    Path(folder).rmdir()


def test_an_engine_started_in_a_shell_ends_cleanly_on_a_signal(
    tiny_llama: Path, tmp_path: Path
) -> None:
    path = tmp_path / "shell.sock"
    command = [sys.executable, "-m", "veriloop_tui.engine.serving.serve"]
    command += ["--load", LoadSettings(tiny_llama).to_json(), "--socket", str(path)]
    served = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert served.stderr is not None
    assert str(path) in served.stderr.readline()

    served.send_signal(signal.SIGTERM)

    assert served.wait(30) == 0
    assert served.stderr.read() == ""
    assert not path.exists()
    served.stderr.close()


def test_modules_in_the_working_directory_are_not_run_by_the_engine(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uvicorn.py").write_text("raise SystemExit('taken over')")
    monkeypatch.chdir(tmp_path)

    with EngineProcess(LoadSettings(tiny_llama)) as process:
        assert process.client().ready()


def test_the_parents_modules_do_not_import_llama_cpp() -> None:
    code = (
        "import sys, veriloop_tui.engine.process, veriloop_tui.engine.client.client;"
        "import veriloop_tui.engine.gguf.facts, veriloop_tui.engine.answer.template;"
        "sys.exit('llama_cpp' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
