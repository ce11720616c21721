"""What this machine offers: sandbox, staging, devices, features of the llama.cpp build."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from veriloop_tui import __version__
from veriloop_tui.config import NO_DRAFT
from veriloop_tui.core.excerpt import one_line
from veriloop_tui.errors import Cancelled, SandboxUnavailable, StagingUnavailable, VeriloopError
from veriloop_tui.store.staging.ladder import choose_stager
from veriloop_tui.wiring.running import draft_file, local_model
from veriloop_tui.wiring.servers import Deadline, ask
from veriloop_tui.wiring.workspace import Location, sandbox_of

_PROBE_SECONDS = 60
_SERVER_SECONDS = 180.0
# In a process of its own: native code may abort, and the command line must not load it.
_PROBE = """
import ctypes, json, llama_cpp
from llama_cpp import llama_cpp as low
print(json.dumps({
    "version": llama_cpp.__version__,
    "system": low.llama_print_system_info().decode(),
    "gpu": bool(low.llama_supports_gpu_offload()),
    "mmap": bool(low.llama_supports_mmap()),
    "mtp": hasattr(low, "LLAMA_CONTEXT_TYPE_MTP"),
}))
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `remedy` says what to do where something is missing."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def examine(location: Location) -> Iterator[Finding]:
    """Everything that decides how well the program works here."""
    yield Finding("program", True, f"veriloop {__version__}, Python {sys.version.split()[0]}")
    yield _sandbox(location)
    yield _staging(location)
    yield from _llama()
    yield from _server(location) if location.settings.server else _local_model(location)
    free = shutil.disk_usage(_existing(location.data)).free
    yield Finding("data", True, f"{location.data}, {free / 2**30:.1f} GiB free")


def _sandbox(location: Location) -> Finding:
    try:
        sandbox = sandbox_of(location)
    except SandboxUnavailable as missing:
        return Finding("sandbox", False, missing.problem, missing.remedy)
    return Finding("sandbox", True, f"{sandbox.tier} (bubblewrap)")


def _staging(location: Location) -> Finding:
    with tempfile.TemporaryDirectory(prefix="veriloop-doctor-") as folder:
        try:
            stager, notes = choose_stager(location.root, Path(folder) / "scratch")
        except StagingUnavailable as missing:
            return Finding("staging", False, missing.problem, "Candidates cannot be verified.")
    return Finding("staging", not notes, stager.rung, " ".join(notes))


def _llama() -> Iterator[Finding]:
    try:
        done = subprocess.run(
            (sys.executable, "-c", _PROBE),
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=True,
        )
        facts = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError, OSError) as problem:
        yield Finding("llama.cpp", False, str(problem), "Run `make install` again.")
        return
    yield Finding("llama.cpp", True, f"llama-cpp-python {facts['version']}, {facts['system']}")
    yield Finding(
        "devices",
        True,
        "GPU offload" if facts["gpu"] else f"CPU only, {os.cpu_count()} threads",
        "" if facts["gpu"] else "For a GPU: `make install BACKEND=cuda|vulkan|metal|rocm`.",
    )
    found = "the build has the calls" if facts["mtp"] else "the build lacks the calls"
    yield Finding("MTP draft heads", facts["mtp"], found, "" if facts["mtp"] else "Update it.")


def _local_model(location: Location) -> Iterator[Finding]:
    ref, draft = location.settings.model, location.settings.draft
    try:
        found = local_model(location)
    except VeriloopError as missing:
        yield Finding("model", False, ref, str(missing))
        return
    size = found.path.stat().st_size / 2**30
    yield Finding("model", True, f"{size:.2f} GiB, {found.quant or 'quant not named'}, {ref}")
    try:
        head = draft_file(location)
    except VeriloopError as missing:
        yield Finding("draft head", False, draft, str(missing))
        return
    if head is not None:
        yield Finding("draft head", True, f"{head.stat().st_size / 2**30:.2f} GiB, {head.name}")
    elif draft == NO_DRAFT:
        yield Finding("draft head", True, "switched off")
    else:
        yield Finding("draft head", True, "none of its own; one inside the model's file is used")


def _server(location: Location) -> Iterator[Finding]:
    shown = location.settings.server
    limit = Deadline(None, _SERVER_SECONDS)
    try:
        found = ask(location.settings, limit).probe
    except Cancelled:
        yield Finding("server", False, f"{shown} was too slow", "See that it is not overloaded.")
        return
    except VeriloopError as problem:
        yield Finding("server", False, shown, str(problem))
        return
    facts, smoke = found.facts, found.smoke
    context = f"context {facts.n_ctx}" if facts.n_ctx else "context not told"
    named = f"{facts.path} ({found.version}), {one_line(facts.name, 100)}, {context}"
    yield Finding("server", True, named)
    yield Finding(
        "smoke test",
        smoke.passed,
        f"{smoke.seconds:.1f} s, '{one_line(smoke.answer, 100)}'",
        "" if smoke.passed else found.smoke_sentence(),
    )
    lacking = ", ".join(found.lacking())
    yield Finding("server's abilities", not lacking, f"not seen: {lacking}" if lacking else "all")


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())
