"""The parts know of each other only what the layout allows, at rest and at run time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
HEAVY = ("textual", "llama_cpp", "numpy", "huggingface_hub")


def test_the_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_line_starts_without_the_heavy_libraries() -> None:
    code = f"import sys, veriloop_tui.cli; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_no_core_module_opens_files_or_runs_programs() -> None:
    for path in sorted((ROOT / "veriloop_tui" / "core").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        for word in ("open(", ".read_text(", ".read_bytes(", ".write_", "print("):
            assert word not in text, f"{path.name} has {word}"
