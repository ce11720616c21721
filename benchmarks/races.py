"""Races of a promotion with a user's edits: `python -m benchmarks.races COUNT [SEED]`.

Prints one line per way of saving; `lost` and `torn` must be 0.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.store.promotion.races import run_races, save_by_rename, save_in_place, save_twice


def main() -> int:
    """Race as often as asked, and fail if a single edit was lost."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns()
    print(f"seed {seed}")
    bad = 0
    for save in (save_by_rename, save_in_place, save_twice):
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            counts = run_races(Path(folder), save, count, seed)
        bad += counts["lost"] + counts["torn"]
        line = ", ".join(f"{name} {counts[name]}" for name in sorted(counts))
        print(f"{save.__name__}: {count} races in {time.monotonic() - started:.1f} s: {line}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
