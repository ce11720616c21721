"""The whole program is killed while it works on a scripted model's edit of several files."""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path

from tests.e2e.ground import (
    Files,
    Running,
    contents,
    create,
    delete,
    make_ground,
    no_leftovers,
    rename,
    replace,
    run_line,
    shell_contract,
    wait_for,
)

OLD: Files = {
    "a.txt": "old\n",
    "b/b.txt": "old\n",
    "b/c.txt": "old\n",
    "junk.txt": "junk\n",
    "kept.txt": "kept\n",
}
ALL_NEW = shell_contract(
    "grep -q new a.txt && grep -q new b/b.txt && grep -q new b/c.txt && test -f made/it.txt"
    " && test -f moved.txt && test ! -e junk.txt"
)
ANSWER = (
    "".join(replace(path, "old", "new") for path in ("a.txt", "b/b.txt", "b/c.txt"))
    + create("made/it.txt", "made")
    + delete("junk.txt")
    + rename("kept.txt", "moved.txt")
)
NEW = {
    "a.txt": b"new\n",
    "b/b.txt": b"new\n",
    "b/c.txt": b"new\n",
    "made/it.txt": b"made\n",
    "moved.txt": b"kept\n",
}
# The event after which to kill, and the longest wait then, in seconds. Promotion comes right after
# the approval, and takes some hundredths of a second.
MOMENTS = [
    *[("run-started", 0.3), ("attempt-started", 0.2), ("verification-started", 0.05)],
    *[("approval-requested", 0.06)] * 7,
]


def test_a_kill_at_any_moment_leaves_the_old_files_or_the_new_ones(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, OLD, ALL_NEW)
    chance = random.Random(20)
    model = ground.model(ANSWER)
    contract = {"veriloop.toml": ground.read("veriloop.toml").encode()}
    old = {path: str(content).encode() for path, content in OLD.items()} | contract
    new = NEW | contract
    around = {path.name for path in tmp_path.iterdir()} | {"data"}
    for event, longest in MOMENTS:
        for path in contents(ground.root):
            (ground.root / path).unlink()
        ground.write(old)
        with ground.started(*run_line(model, attempts=1)) as running:
            running.until(event)
            time.sleep(chance.uniform(0, longest))
            running.process.kill()
            killed = running.finish()
        no_leftovers(tmp_path)

        # Whatever was broken off is settled by the next command that opens the workspace.
        verified = ground.veriloop("verify", "--json")

        after = contents(ground.root)
        assert after in (old, new), (event, killed.out, verified)
        assert verified.code == (1 if after == old else 0), verified
        committed = any(attempt["decision"] == "committed" for attempt in killed.attempts)
        assert after == new or not committed, "an announced commit is gone"
        assert {path.name for path in tmp_path.iterdir()} == around
        ground.fsck()


def test_a_kill_while_a_command_is_starting_leaves_it_not_running(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, OLD, shell_contract("sleep 1000"))
    chance = random.Random(5)
    for _ in range(12):
        with ground.started("verify") as running:
            # Overlay and sandbox are set up in the first hundredth of a second.
            wait_for(partial(starts, running, b"sleep 1000"))
            time.sleep(chance.uniform(0, 0.012))
            running.process.kill()
            running.finish()
        no_leftovers(tmp_path)


def starts(running: Running, words: bytes) -> bool:
    """Whether a child of the command, as yet only setting up, is to run these words."""
    own = Path("/proc") / str(running.process.pid)
    try:
        children = [(task / "children").read_text().split() for task in (own / "task").iterdir()]
        lines = [(own.parent / pid / "cmdline").read_bytes() for pids in children for pid in pids]
    except OSError:
        return False
    return any(words in line for line in lines)
