"""What the machine has for running models: memory, disk, and cores."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psutil

from quant.running.layout import Room
from veriloop_tui.engine.fit.host import host_device
from veriloop_tui.engine.fit.probe import devices


def room_in(folder: Path, *, gpu: bool) -> Room:
    """What is free now; `gpu` if models are loaded to GPUs. Raises `EngineStartFailed`."""
    memory, disk = host_device().free, shutil.disk_usage(folder).free
    if not gpu:
        return Room(memory, memory, False, str(folder), disk)
    _, *found = devices()
    return Room(memory, sum(one.free for one in found), True, str(folder), disk)


def cores() -> int:
    """Physical cores that this process may use; threads beyond them only wait."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(psutil.cpu_count(logical=False) or 1, allowed or 1)
