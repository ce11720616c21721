"""Run as a script: puts a key into a session keyring and lets commands of every tier look for it.

In a process of its own, since the keyring is the process's and is inherited.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from tests.contract.sandbox_ground import make_ground, python
from veriloop_tui.contract.job import Tier

ADD_KEY, KEYCTL = {"x86_64": (248, 250)}.get(os.uname().machine, (217, 219))
JOIN, SEARCH, SESSION = 1, 10, -3
LOOK = f"""
import ctypes
print(ctypes.CDLL(None).syscall({KEYCTL}, {SEARCH}, {SESSION}, b"user", b"ours", 0))
"""


def main() -> None:
    libc = ctypes.CDLL(None)
    libc.syscall(KEYCTL, JOIN, None)
    libc.syscall(ADD_KEY, b"user", b"ours", b"SECRET", 6, SESSION)
    found = libc.syscall(KEYCTL, SEARCH, SESSION, b"user", b"ours", 0)
    print("outside:", "found" if found > 0 else "this kernel keeps no keys")
    ground = make_ground(Path(sys.argv[1]))
    tiers: tuple[Tier, ...] = ("best", "reduced", "none")
    for tier in tiers:
        print(f"{tier}: {ground.run(python(LOOK), tier).tail.strip()}")


if __name__ == "__main__":
    main()
