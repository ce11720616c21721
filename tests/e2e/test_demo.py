"""One run of the demo with its real model, which is not scripted."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.ground import Ground, no_leftovers


def test_the_demos_real_model_makes_verified_progress(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    (tmp_path / "home").mkdir()
    ground.root.mkdir()
    done = ground.veriloop("demo", str(ground.root), "--headless", "--json", "--seed", "1")

    assert done.code in (0, 1), done.err
    ended = done.ended
    assert ended["commits"] >= 1
    assert ended["commits"] == sum(a["decision"] == "committed" for a in done.attempts)
    assert ended["attempts"] == len(done.attempts) <= 40
    assert ended["rank_after"] < ended["rank_before"]
    for attempt in done.attempts:
        assert (attempt["decision"] == "committed") == (attempt["label"] == "strict-progress")
    assert (done.code == 0) == (ended["outcome"] == "complete")
    no_leftovers(tmp_path)
    ground.fsck()
