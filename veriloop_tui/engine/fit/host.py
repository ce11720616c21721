"""How much of the machine's memory this process may still use."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import psutil

from veriloop_tui.engine.fit.memory import Device

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")


def host_device() -> Device:
    """The machine's own memory, no more of it than a container's limit leaves."""
    memory = psutil.virtual_memory()
    free, total = memory.available, memory.total
    for left, limit in cgroup_memory(_CGROUPS, _OWN):
        free, total = min(free, left), min(total, limit)
    return Device("CPU", "this machine's memory", "cpu", free, total)


def cgroup_memory(root: Path, own: Path) -> list[tuple[int, int]]:
    """Bytes left and limit of each control group with a limit that this process is in.

    `root` is where control groups are mounted, `own` the list of this process's. Of what is used,
    files' pages that nobody used lately do not count: they go when memory is wanted.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []  # Not Linux.
    found: list[tuple[int, int]] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        names = _V1 if controllers else _V2
        # A container often sees its own group as the root, whatever the list says.
        group = root / "memory" if controllers else root
        for part in ("", *Path(path).parts[1:]):
            group = group / part
            if (limit := _group(group, names)) is not None:
                found.append(limit)
    return found


# The files of a limit, of what is used, and the entry of what can be dropped.
_V1: Final = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2: Final = ("memory.max", "memory.current", "inactive_file")


def _group(group: Path, names: tuple[str, str, str]) -> tuple[int, int] | None:
    limit, used = _number(group / names[0]), _number(group / names[1])
    if limit is None or used is None or limit >= 1 << 62:
        return None
    try:
        entries = (line.split() for line in (group / "memory.stat").read_text().splitlines())
        droppable = next((int(e[1]) for e in entries if e[0] == names[2]), 0)
    except OSError:
        droppable = 0
    return max(0, limit - max(0, used - droppable)), limit


def _number(file: Path) -> int | None:
    """The number in a file; `None` for `max`, and where there is none."""
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
