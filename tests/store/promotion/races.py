"""Races between a promotion and a user who saves one of its files, in another process."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.store.promotion.promotion_ground import RESULT, entry_of
from veriloop_tui.core.snapshot import Candidate, Entry, SnapshotId, Write
from veriloop_tui.errors import PromotionFailed, StaleBase
from veriloop_tui.store.lock import WorkspaceLock
from veriloop_tui.store.promotion.promoter import JournalledPromoter
from veriloop_tui.wiring.clock import SystemClock

Save = Callable[[Path, bytes, random.Random], None]


def save_by_rename(path: Path, content: bytes, rng: random.Random) -> None:
    """As most editors do: a new file, renamed over the old one."""
    fresh = path.with_name(path.name + "~")
    fresh.write_bytes(content)
    fresh.replace(path)


def save_in_place(path: Path, content: bytes, rng: random.Random) -> None:
    """As some editors and all shells do: open, truncate, write, at their leisure."""
    fd = os.open(path, os.O_RDWR)
    time.sleep(rng.choice((0.0, rng.uniform(0, 0.003))))
    os.ftruncate(fd, 0)
    time.sleep(rng.choice((0.0, rng.uniform(0, 0.003))))
    os.write(fd, content)
    os.close(fd)


def save_twice(path: Path, content: bytes, rng: random.Random) -> None:
    """Two renames in a row; the second must survive."""
    save_by_rename(path, b"the first of two " + content, rng)
    save_by_rename(path, content, rng)


def run_races(folder: Path, save: Save, count: int, seed: int) -> Counter[str]:
    """Race `count` times; counts `committed`, `stale`, `failed`, and `lost` and `torn`.

    `lost`: the user's bytes are not at the path. `torn`: the candidate's other file disagrees with
    what the ledger says.
    """
    rng = random.Random(seed)
    root, ledger = folder / "work", set[str]()
    root.mkdir()
    first, second = root / "a.py", root / "b.py"
    base: dict[str, Entry | None] = {}
    promoter = JournalledPromoter(
        root,
        folder / "data",
        entry=lambda snapshot, path: base[path],
        committed=ledger.__contains__,
        lock=WorkspaceLock(folder / "data", root, SystemClock()),
        clock=SystemClock(),
        notice=lambda text: None,
    )
    span = 0.008
    counts: Counter[str] = Counter()
    for number in range(count):
        for path in (first, second):
            path.write_bytes(b"old %d" % number)
            # Long past, so that no promotion has to wait for a free second.
            os.utime(path, (1_000_000, 1_000_000))
            base[path.name] = entry_of(root, path.name)
        mine = b"the user's %d" % number
        bundle = f"bundle-{number}"
        delay = rng.uniform(0, span)
        child = os.fork()
        if child == 0:
            time.sleep(delay)
            save(first, mine, rng)
            os._exit(0)
        changes = (Write("a.py", b"new %d" % number), Write("b.py", b"new %d" % number))
        started = time.monotonic()
        try:
            candidate = Candidate(SnapshotId(f"base-{number}"), changes)
            promoter.promote(candidate, RESULT, bundle, partial(ledger.add, bundle))
            counts["committed"] += 1
            span = max(span * 0.9, (time.monotonic() - started) * 1.2)
        except StaleBase:
            counts["stale"] += 1
        except PromotionFailed:
            counts["failed"] += 1
        if os.waitpid(child, 0)[1] != 0:
            raise ChildProcessError("the saving process failed")
        counts["lost"] += first.read_bytes() != mine
        wanted = b"new %d" if bundle in ledger else b"old %d"
        counts["torn"] += second.read_bytes() != wanted % number
    return counts
