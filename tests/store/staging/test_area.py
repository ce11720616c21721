"""The folder behind a stage goes away whatever is in it."""

from __future__ import annotations

import os
from pathlib import Path

from veriloop_tui.store.staging.area import remove_tree, stage_area


def test_a_tree_deeper_than_any_path_may_be_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    back = os.open(".", os.O_RDONLY)
    os.chdir(top)
    try:
        for _ in range(1500):
            Path("deep-folder").mkdir()
            os.chdir("deep-folder")
        Path("file").touch()
    finally:
        os.fchdir(back)
        os.close(back)
    remove_tree(top)
    assert not top.exists()


def test_links_are_removed_and_never_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (tmp_path / "top" / "in").mkdir(parents=True)
    (tmp_path / "top" / "in" / "link").symlink_to(outside)
    remove_tree(tmp_path / "top")
    assert outside.stat().st_mode & 0o777 == 0o500


def test_an_area_is_private_to_the_user(tmp_path: Path) -> None:
    with stage_area(tmp_path / "scratch", "overlay") as area:
        assert area.stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "scratch").stat().st_mode & 0o777 == 0o700
    assert not area.exists()
