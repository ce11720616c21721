"""The demo's workspace: a small project with honest bugs and tests that show them."""

from __future__ import annotations

import json
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from veriloop_tui.errors import UsageError

TASK = "Make the failing tests pass."
_CONTRACT = "veriloop.toml"
_SKIPPED = "__pycache__"


def write_demo(folder: Path, python: str) -> None:
    """Write the project fresh into `folder`, which is made where it is missing.

    `python` is the interpreter that its contract runs the tests with. Raises `UsageError` for a
    folder that holds anything already, `OSError` where it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty; name an empty folder for the demo.")
    _copy(files("veriloop_tui") / "demo_workspace", folder)
    contract = folder / _CONTRACT
    text = contract.read_text(encoding="utf-8")
    # A JSON string is a TOML string too, whatever the path holds.
    quoted = json.dumps(python, ensure_ascii=False)
    contract.write_text(text.replace('"python3"', quoted, 1), encoding="utf-8")


def _copy(source: Traversable, target: Path) -> None:
    for item in source.iterdir():
        if item.name == _SKIPPED:
            continue
        if item.is_dir():
            (target / item.name).mkdir()
            _copy(item, target / item.name)
        else:
            (target / item.name).write_bytes(item.read_bytes())
