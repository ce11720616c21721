"""llama-server as the peer of the engine's benchmarks: built from the tree in the same sdist.

`python -m benchmarks.peer FOLDER` builds llama-server, llama-perplexity and llama-quantize into
FOLDER/bin, which takes some minutes. It needs a C++ compiler; cmake and ninja come by pip.
"""

import json
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

SDIST = "llama-cpp-python==0.3.36"
TARGETS = ("llama-server", "llama-perplexity", "llama-quantize")


def build(folder: Path) -> Path:
    """Build the peers unless they are there; the folder with the programs."""
    programs = folder / "bin"
    if all((programs / target).exists() for target in TARGETS):
        return programs
    tools = folder / "tools"
    pip = (sys.executable, "-m", "pip", "--quiet")
    subprocess.run((*pip, "install", "--target", str(tools), "cmake", "ninja"), check=True)
    source = folder / "source"
    subprocess.run(
        (
            *pip,
            "download",
            "--no-deps",
            "--no-binary",
            "llama-cpp-python",
            "--dest",
            str(source),
            SDIST,
        ),
        check=True,
    )
    (archive,) = source.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(source, filter="data")
    (tree,) = source.glob("*/vendor/llama.cpp")
    environment = {
        **os.environ,
        "PYTHONPATH": str(tools),
        "PATH": f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    options = (
        "-DCMAKE_BUILD_TYPE=Release",
        "-DLLAMA_BUILD_TESTS=OFF",
        "-DLLAMA_BUILD_EXAMPLES=OFF",
    )
    cmake = str(tools / "bin" / "cmake")
    subprocess.run(
        (cmake, "-S", str(tree), "-B", str(folder), "-G", "Ninja", *options),
        env=environment,
        check=True,
    )
    subprocess.run(
        (cmake, "--build", str(folder), "--target", *TARGETS), env=environment, check=True
    )
    return programs


@dataclass(frozen=True)
class Answer:
    """One streamed answer: seconds to the first text and to the end, and what the server said."""

    first_s: float
    total_s: float
    tokens: int
    prompt_ms: float
    predicted_ms: float
    drafted: int
    accepted: int

    @property
    def rate(self) -> float:
        """Tokens per second after the first one, as the client sees them."""
        return (self.tokens - 1) / (self.total_s - self.first_s) if self.tokens > 1 else 0.0


def ask(client: httpx.Client, body: Mapping[str, Any]) -> Answer:
    """One greedy chat completion, streamed; `body` may override."""
    request = {
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "seed": 1,
        **body,
    }
    begun = time.perf_counter()
    first = 0.0
    usage: dict[str, Any] = {}
    timings: dict[str, Any] = {}
    with client.stream("POST", "/v1/chat/completions", json=request) as response:
        if response.status_code != 200:
            raise RuntimeError(response.read().decode("utf-8", "replace"))
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            data = json.loads(line[6:])
            choices = data.get("choices") or [{}]
            if not first and (choices[0].get("delta") or {}).get("content"):
                first = time.perf_counter() - begun
            usage, timings = data.get("usage") or usage, data.get("timings") or timings
    total = time.perf_counter() - begun
    return Answer(
        first_s=first or total,
        total_s=total,
        tokens=usage.get("completion_tokens", 0),
        prompt_ms=timings.get("prompt_ms", 0.0),
        predicted_ms=timings.get("predicted_ms", 0.0),
        drafted=timings.get("draft_n", 0),
        accepted=timings.get("draft_n_accepted", 0),
    )


@contextmanager
def llama_server(
    programs: Path, model: Path, n_ctx: int, threads: int, *flags: str
) -> Iterator[httpx.Client]:
    """A running llama-server with the model loaded."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(programs / "llama-server"), "--model", str(model), "--port", str(port)]
    command += ["--ctx-size", str(n_ctx), "--threads", str(threads), "--host", "127.0.0.1", *flags]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
        # A connection that idles through the other's turn would be closed by the server.
        fresh = httpx.Limits(max_keepalive_connections=0)
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600, limits=fresh)
        try:
            _wait(client, server, log)
            yield client
        finally:
            client.close()
            server.terminate()
            server.wait()


def _wait(client: httpx.Client, server: subprocess.Popen[bytes], log: Any) -> None:
    for _ in range(6000):
        if server.poll() is not None:
            log.seek(0)
            raise RuntimeError(log.read().decode("utf-8", "replace")[-2000:])
        try:
            if client.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise RuntimeError("llama-server did not become ready")


if __name__ == "__main__":
    print(build(Path(sys.argv[1]).resolve()))
