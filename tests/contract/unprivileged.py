"""Run as a script: gives up root, then runs commands in every tier on every rung."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.contract.sandbox_ground import make_ground
from veriloop_tui.contract.command import End
from veriloop_tui.contract.job import Limits, Tier
from veriloop_tui.store.staging.ladder import WantedRung

NOBODY = 65534
WORK = "id -u; grep CapEff /proc/self/status; echo x >>file; mkdir d; touch d/f; chmod 0 d; exit 3"
BOMB = "i=0; while [ $i -lt 400 ]; do sleep 30 & i=$((i+1)); done; wait"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        if os.getuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            if not os.access(sys.executable, os.X_OK):  # an interpreter in root's own home
                sys.executable = shutil.which("python3", path="/usr/local/bin:/usr/bin") or ""
        ground = make_ground(Path(folder))
        (ground.root / "file").write_text("base")
        tiers: tuple[Tier, ...] = ("best", "reduced", "none")
        rungs: tuple[WantedRung, ...] = ("overlay", "copy")
        for tier in tiers:
            for rung in rungs:
                ran = ground.run(
                    WORK,
                    tier,
                    rung=rung,
                )
                who = "the user" if ran.tail == f"{os.getuid()}\nCapEff:\t{0:016x}\n" else ran.tail
                stopped = False
                if tier == "best":
                    bomb = ground.run(BOMB, tier, rung=rung, limits=Limits(processes=100))
                    stopped = bomb.end is End.PROCESS_LIMIT or "fork" in bomb.tail
                print(
                    f"{tier} {rung} as {who}, ended {ran.end} {ran.exit_code}, "
                    f"fork bomb stopped: {stopped}"
                )
        assert (ground.root / "file").read_text() == "base"


if __name__ == "__main__":
    main()
