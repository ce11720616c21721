"""A user who saves a file while it is promoted never loses what they saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.promotion.races import Save, run_races, save_by_rename, save_in_place, save_twice


@pytest.mark.parametrize(
    ("save", "count"), [(save_by_rename, 200), (save_in_place, 200), (save_twice, 60)]
)
def test_no_save_is_lost_and_no_promotion_torn(tmp_path: Path, save: Save, count: int) -> None:
    counts = run_races(tmp_path, save, count, seed=20)
    assert counts["lost"] == 0
    assert counts["torn"] == 0
    assert counts["committed"] + counts["stale"] + counts["failed"] == count
    # Both ends must have been met, else the races raced nothing.
    assert counts["committed"] > 0
    assert counts["stale"] > 0
