"""The whole program killed at random moments, as a user would see it."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.quant.files import write_base
from tests.scripted_gguf import write_random_gguf

ROOT = Path(__file__).parents[3]


def command(folder: Path, mode: str) -> list[str]:
    options = ["--n-ctx", "64", "--n-batch", "128", "--n-ubatch", "64", "--no-speeds", "--json"]
    return [
        *(sys.executable, "-m", "quant", "compare"),
        *(str(folder / "tiny-F32.gguf"), str(folder / "other.gguf")),
        *("--corpus", str(folder / "text.txt"), *options),
        *("--mode", mode, "--records", str(folder / "records")),
    ]


def start(folder: Path, mode: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(folder, mode),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def numbers(text: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(text)["report"]
    report.pop("created")
    return report


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    write_base(tmp_path)
    write_random_gguf(tmp_path / "other.gguf", "llama", 4, width=256, blocks=2)
    (tmp_path / "text.txt").write_text("A few words that a model reads, again and again. " * 200)
    return tmp_path


def test_a_killed_program_goes_on_to_the_same_numbers_in_every_way(folder: Path) -> None:
    chance = random.Random(7)
    begun = time.monotonic()
    whole, told = start(folder, "lockstep").communicate()
    length = time.monotonic() - begun
    assert whole, told
    for mode in ("lockstep", "windows", "file"):
        shutil.rmtree(folder / "records")
        for _ in range(2):
            child = start(folder, mode)
            try:
                child.communicate(timeout=chance.uniform(0.3, 1) * length)
            except subprocess.TimeoutExpired:
                child.kill()
                child.communicate()
        child = start(folder, mode)
        again, told = child.communicate()
        assert child.returncode == 0, told
        assert numbers(again) == numbers(whole)
        assert not list((folder / "records").rglob("*logits*"))


def test_ctrl_c_says_that_whole_chunks_are_kept(folder: Path) -> None:
    (folder / "text.txt").write_text("A few words that a model reads. " * 20_000)
    child = start(folder, "lockstep")
    deadline = time.monotonic() + 60
    while not any(one.stat().st_size > 1000 for one in (folder / "records").rglob("*.losses")):
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, told = child.communicate()
    assert child.returncode == 130
    assert "Whole chunks are kept" in told
