"""The ground of the end-to-end tests: a workspace, its records, and the installed `veriloop`.

The models here are scripted (tests/scripted_gguf.py): they have learnt nothing and recite what the
test wrote. All else is real: llama.cpp in its process, the overlay, bubblewrap, pytest, the store.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from tests.scripted_gguf import write_scripted_gguf

VERILOOP = Path(sys.executable).parent / "veriloop"
DEADLINE = 120.0
N_CTX = 32_768  # a scripted model's prompt has one token per byte

# Phrases of evidence. A scripted model answers to the last trigger in its prompt, and the last
# thing in a prompt is the evidence of the attempt before.
AFTER_INVALID = "it was not a change that could be tried"
AFTER_UNRANKABLE = "its effect could not be measured"
AFTER_INCOMPARABLE = "it improved some checks but made others worse"
AFTER_NO_PROGRESS = "no check improved"
AFTER_REGRESSION = "it made checks worse and improved none"

Event = dict[str, Any]
Files = Mapping[str, str | bytes]


@dataclass(frozen=True, slots=True)
class Done:
    """A command line that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def events(self) -> list[Event]:
        return [json.loads(line) for line in self.out.splitlines()]

    def of(self, kind: str) -> list[Event]:
        """All events of one type."""
        return [event for event in self.events if event["type"] == kind]

    @property
    def attempts(self) -> list[Event]:
        return self.of("attempt-ended")

    @property
    def verdicts(self) -> list[tuple[str, str]]:
        return [(attempt["label"], attempt["decision"]) for attempt in self.attempts]

    @property
    def ended(self) -> Event:
        """The last event, which must be the end of the run."""
        last = self.events[-1]
        assert last["type"] == "run-ended", last
        return last


@dataclass(slots=True)
class Running:
    """A command line that has not ended yet."""

    process: subprocess.Popen[str]
    lines: IO[str]
    errors: IO[str]
    seen: str = ""

    def until(self, kind: str) -> Event:
        """Read on to the next event of this type."""
        for line in self.lines:
            self.seen += line
            event: Event = json.loads(line)
            if event["type"] == kind:
                return event
        raise AssertionError(f"ended without {kind}: {self.finish()}")

    def finish(self) -> Done:
        """Read on to the end."""
        self.seen += self.lines.read()
        code = self.process.wait()
        self.errors.seek(0)
        return Done(code, self.seen, self.errors.read())


@dataclass(frozen=True, slots=True)
class Ground:
    """A workspace with a home and a data folder of its own, all below one temporary folder."""

    tmp: Path

    @property
    def root(self) -> Path:
        return self.tmp / "project"

    @property
    def environment(self) -> dict[str, str]:
        """No more than a shell would give, and no way to the real user's files."""
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.tmp / "home"),
            "XDG_DATA_HOME": str(self.tmp / "data"),
            "XDG_CONFIG_HOME": str(self.tmp / "config"),
            "LANG": "C.UTF-8",
        }

    def read(self, path: str) -> str:
        return (self.root / path).read_bytes().decode()

    def write(self, files: Files) -> None:
        for path, content in files.items():
            place = self.root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content.encode() if isinstance(content, str) else content)

    def veriloop(self, *arguments: str) -> Done:
        """The installed command on this workspace, without a terminal."""
        with self.started(*arguments) as running:
            return running.finish()

    @contextmanager
    def started(self, *arguments: str) -> Iterator[Running]:
        """The command in the background; it is gone at the end, whatever happened."""
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                [str(VERILOOP), *arguments],
                cwd=self.root,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
            assert process.stdout is not None
            overdue = threading.Timer(DEADLINE, process.kill)
            overdue.start()
            try:
                yield Running(process, process.stdout, errors)
            finally:
                overdue.cancel()
                process.kill()
                process.wait()
                process.stdout.close()

    def run(self, model: Path, *more: str, attempts: int = 1, task: str = "Repair it.") -> Done:
        """One run of the scripted model with every verified commit let through."""
        return self.veriloop(*run_line(model, *more, attempts=attempts, task=task))

    def trusted(self) -> Ground:
        done = self.veriloop("trust", "--yes")
        assert done.code == 0, done.err
        return self

    def fsck(self) -> None:
        """Every recorded byte is as it was written."""
        done = self.veriloop("fsck", "--json")
        assert (done.code, done.json) == (0, {"clean": True, "damage": []}), done

    def model(self, first: str, then: Mapping[str, str] | None = None) -> Path:
        """A scripted model: it answers `first`, or to the last trigger of `then` in its prompt."""
        return write_scripted_gguf(self.tmp / "scripted.gguf", then or {}, first, n_ctx=N_CTX)


def make_ground(tmp: Path, files: Files, contract: str) -> Ground:
    """A workspace with these files and this contract, which is trusted."""
    ground = Ground(tmp)
    (tmp / "home").mkdir(parents=True)
    ground.root.mkdir()
    ground.write({**files, "veriloop.toml": contract})
    return ground.trusted()


def pytest_contract(*, repeats: int = 1, timeout: str = "60s", more: str = "") -> str:
    """A contract that runs the project's pytest suite."""
    words = json.dumps(
        [
            *("env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", sys.executable, "-m", "pytest", "-q"),
            *("-p", "no:cacheprovider", "--continue-on-collection-errors"),
            *("-o", "junit_family=xunit1", "--junitxml={report}"),
        ]
    )
    return f"""version = 1
{more}
[[obligation]]
name = "tests"
run = {words}
report = "junit"
timeout = "{timeout}"
repeats = {repeats}
"""


def shell_contract(line: str, *, timeout: str = "60s", more: str = "") -> str:
    """A contract with one check: the exit code of a shell line, which takes no time to start."""
    return f"""version = 1
{more}
[[obligation]]
name = "line"
run = {json.dumps(line)}
report = "exit"
timeout = "{timeout}"
repeats = 1
"""


def run_line(model: Path, *more: str, attempts: int, task: str = "Repair it.") -> list[str]:
    """The arguments of one run: JSON lines, no questions, search/replace asked for."""
    return [
        *("run", task, "--model", str(model), "--auto", "--json", "--seed", "1"),
        *("--edit-format", "search-replace", "--threads", "1", "--n-ctx", str(N_CTX)),
        *("--attempts", str(attempts), *more),
    ]


def replace(path: str, old: str, new: str) -> str:
    """An answer that edits one place."""
    return f"`{path}`\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n"


def create(path: str, content: str) -> str:
    """An answer that makes a new file."""
    return f"`{path}`\n<<<<<<< SEARCH\n=======\n{content}\n>>>>>>> REPLACE\n"


def delete(path: str) -> str:
    """An answer that deletes a file."""
    return f"`{path}`\n<<<<<<< DELETE\n>>>>>>> DELETE\n"


def rename(path: str, to: str) -> str:
    """An answer that renames a file."""
    return f"`{path}`\n<<<<<<< RENAME\n{to}\n>>>>>>> RENAME\n"


def everything(root: Path) -> dict[str, tuple[object, ...]]:
    """Each entry of a tree, the root too: kind and mode, size, times of change, bytes or target."""
    seen: dict[str, tuple[object, ...]] = {}
    for path in (root, *sorted(root.rglob("*"))):
        status = path.lstat()
        content: object = None
        if path.is_symlink():
            content = path.readlink()
        elif path.is_file():
            content = path.read_bytes()
        facts = (status.st_mode, status.st_ino, status.st_nlink, status.st_mtime_ns, content)
        seen[str(path.relative_to(root))] = facts
    return seen


def contents(root: Path) -> dict[str, bytes]:
    """The bytes of every file of a tree."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def wait_for(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until something holds; fail if it never does."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def below(running: Running, word: str) -> psutil.Process | None:
    """A process below a running command that has `word` among its own, `None` if there is none."""
    for process in psutil.Process(running.process.pid).children(recursive=True):
        try:
            if word in process.cmdline():
                return process
        except psutil.Error:
            continue
    return None


def leftovers(tmp: Path) -> list[str]:
    """Command lines, working folders and mounts of living processes that name this folder."""
    found: list[str] = []
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            places = [*process.cmdline(), process.cwd()]
            mounts = Path(f"/proc/{process.pid}/mounts").read_text(encoding="utf-8")
        except (psutil.Error, OSError):
            continue
        if any(str(tmp) in place for place in places) or str(tmp) in mounts:
            found.append(" ".join(places))
    return found


def no_leftovers(tmp: Path) -> None:
    """Every process that worked for this folder has ended, or does so within moments."""
    deadline = time.monotonic() + 5.0
    while left := leftovers(tmp):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
