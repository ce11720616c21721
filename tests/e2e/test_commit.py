"""A good edit of a scripted model: from its answer to the bytes in workspace and records."""

from __future__ import annotations

import stat
from dataclasses import dataclass

import pytest

from tests.e2e.ground import (
    Done,
    Event,
    Files,
    Ground,
    create,
    delete,
    everything,
    make_ground,
    no_leftovers,
    pytest_contract,
    rename,
    replace,
)

BROKEN = b"#!/usr/bin/env python3\r\ndef add(a, b):\r\n    return a - b"
MENDED = b"#!/usr/bin/env python3\r\ndef add(a, b):\r\n    return a + b"
FILES: Files = {
    "calc.py": BROKEN,
    "notes.txt": "nothing of the model's",
    "tests/test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    "conftest.py": "",
}
ANSWER = "`add` must add.\n\n" + replace("calc.py", "    return a - b", "    return a + b")


@dataclass(frozen=True, slots=True)
class Committed:
    """A workspace where a scripted model has made its one commit, and how that went."""

    ground: Ground
    before: dict[str, tuple[object, ...]]
    done: Done

    @property
    def attempt(self) -> Event:
        (attempt,) = self.done.attempts
        return attempt


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Committed:
    ground = make_ground(tmp_path_factory.mktemp("commit"), FILES, pytest_contract(repeats=2))
    (ground.root / "calc.py").chmod(0o755)
    before = everything(ground.root)
    return Committed(ground, before, ground.run(ground.model(ANSWER), attempts=3))


def test_a_good_edit_is_committed_and_completes_the_run(committed: Committed) -> None:
    assert committed.done.code == 0, committed.done
    assert committed.done.verdicts == [("strict-progress", "committed")]
    names = {check["name"] for check in committed.attempt["improved"]}
    assert "tests/test_calc.py::test_add" in names
    assert committed.attempt["zero_rank"]


def test_a_commit_changes_the_named_bytes_and_nothing_else(committed: Committed) -> None:
    root = committed.ground.root
    assert (root / "calc.py").read_bytes() == MENDED  # its line ends, and none at its end
    assert stat.S_IMODE((root / "calc.py").stat().st_mode) == 0o755
    after = everything(root)
    touched = {path for path in after if after[path] != committed.before.get(path)}
    assert touched <= {".", "calc.py"}
    assert after.keys() == committed.before.keys()


def test_the_last_event_tells_how_the_run_ended(committed: Committed) -> None:
    ended = committed.done.ended
    assert ended["outcome"] == "complete"
    assert (ended["attempts"], ended["commits"]) == (1, 1)
    assert ended["rank_before"] == committed.attempt["rank_before"] > 0
    assert ended["rank_after"] == 0
    assert ended["bundle"] == committed.attempt["bundle"] != ""


def test_improved_checks_are_run_again_before_the_commit(committed: Committed) -> None:
    assert [e["run_index"] for e in committed.done.of("verification-started")] == [0, 1]


def test_the_run_uses_full_isolation_and_leaves_no_process(committed: Committed) -> None:
    (started,) = committed.done.of("run-started")
    assert (started["sandbox_tier"], started["staging_rung"]) == ("best", "overlay")
    no_leftovers(committed.ground.tmp)


def test_the_log_names_the_commit_and_its_bundle_can_be_shown(committed: Committed) -> None:
    ground, ident = committed.ground, committed.attempt["bundle"]
    rows = ground.veriloop("log", "--json").json
    kinds = [row["event"]["type"] for row in rows if row["bundle"]]
    assert kinds[:2] == ["incumbent-measured", "attempt-ended"]
    assert ident in {row["bundle"] for row in rows}
    shown = ground.veriloop("show", ident[:12], "--json").json
    assert shown["bundle_id"] == ident
    assert shown["bundle"]["state"]["rank"]["flaky"] == []
    assert {value for _, value in shown["bundle"]["state"]["rank"]["entries"]} == {0}
    assert [record["exit_code"] for record in shown["bundle"]["verification"]] == [0, 0]
    binding = shown["bundle"]["binding"]
    assert binding["model"]["name"] == "scripted"
    assert binding["sandbox_tier"] == "best"


def test_the_log_and_a_bundle_can_be_read_as_text(committed: Committed) -> None:
    ident = committed.attempt["bundle"]
    log = committed.ground.veriloop("log")
    shown = committed.ground.veriloop("show", ident[:12])
    assert (log.code, shown.code) == (0, 0)
    assert ident[:12] in log.out
    assert ident in shown.out


def test_an_unknown_bundle_is_a_usage_error(committed: Committed) -> None:
    done = committed.ground.veriloop("show", "feedfeedfeed")
    assert done.code == 2
    assert "feedfeedfeed" in done.err


def test_a_commit_can_be_compared_rolled_back_and_brought_again(committed: Committed) -> None:
    ground = committed.ground
    old, new = [row["bundle"] for row in ground.veriloop("log", "--json").json if row["bundle"]][:2]

    difference = ground.veriloop("diff", old[:12], new[:12], "--json").json
    assert (difference["old"], difference["new"]) == (old, new)
    assert difference["paths"] == ["calc.py"]
    assert "+    return a + b" in difference["text"]

    unasked = ground.veriloop("rollback", old[:12], "--json")
    assert unasked.code == 2
    assert (ground.root / "calc.py").read_bytes() == MENDED

    back = ground.veriloop("rollback", old[:12], "--yes", "--json")
    assert back.code == 0, back
    assert back.json["type"] == "rolled-back"
    assert (back.json["target"], back.json["paths"]) == (old, ["calc.py"])
    assert (ground.root / "calc.py").read_bytes() == BROKEN
    assert stat.S_IMODE((ground.root / "calc.py").stat().st_mode) == 0o755
    ground.fsck()

    again = ground.veriloop("rollback", back.json["previous"][:12], "--yes", "--json")
    assert again.code == 0, again
    assert (ground.root / "calc.py").read_bytes() == MENDED
    ground.fsck()

    nothing = ground.veriloop("rollback", new[:12], "--yes", "--json")
    assert nothing.code == 2
    assert "nothing to roll back" in nothing.err


def test_fsck_names_a_changed_byte(committed: Committed) -> None:
    ground = committed.ground
    (segment, *_) = sorted((ground.tmp / "data").rglob("segments/*"))
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    damaged = ground.veriloop("fsck", "--json")
    segment.write_bytes(whole)
    assert damaged.code == 1
    assert not damaged.json["clean"]
    assert segment.name in damaged.json["damage"][0]["where"]
    ground.fsck()


# The words below are put together at run time, so that only a failing test's output has them, and
# not the test's text, which the prompt shows too.
STEPS = """
import importlib
import pathlib


def test_a_added():
    try:
        module = importlib.import_module("added")
    except ImportError:
        raise AssertionError("-".join(("STEP", "create"))) from None
    assert module.VALUE == 1


def test_b_gone():
    assert not pathlib.Path("old/junk.py").exists(), "-".join(("STEP", "delete"))


def test_c_renamed():
    try:
        module = importlib.import_module("store")
    except ImportError:
        raise AssertionError("-".join(("STEP", "rename"))) from None
    assert module.NAME == "shop"
"""


def test_created_deleted_and_renamed_files_are_committed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    files = {
        "old/junk.py": "JUNK = 1\n",
        "shop.py": "NAME = 'shop'\n",
        "test_steps.py": STEPS,
    }
    ground = make_ground(tmp_path_factory.mktemp("steps"), files, pytest_contract())
    (ground.root / "shop.py").chmod(0o750)
    answers = {
        "STEP-create": create("added/__init__.py", "VALUE = 1"),
        "STEP-delete": delete("old/junk.py"),
        "STEP-rename": rename("shop.py", "store.py"),
    }
    done = ground.run(ground.model("There is nothing left to say.", answers), attempts=3)

    assert done.code == 0, done
    assert [label for label, _ in done.verdicts] == ["strict-progress"] * 3
    paths = [parsed["paths"] for parsed in done.of("candidate-parsed")]
    assert sorted(map(tuple, paths)) == [
        ("added/__init__.py",),
        ("old/junk.py",),
        ("shop.py", "store.py"),
    ]
    assert ground.read("added/__init__.py") == "VALUE = 1\n"
    assert not (ground.root / "old/junk.py").exists()
    assert not (ground.root / "shop.py").exists()
    assert ground.read("store.py") == "NAME = 'shop'\n"
    assert stat.S_IMODE((ground.root / "store.py").stat().st_mode) == 0o750
    ground.fsck()

    first = ground.veriloop("log", "--json").json[1]["bundle"]
    assert ground.veriloop("rollback", first, "--yes").code == 0
    assert ground.read("shop.py") == "NAME = 'shop'\n"
    assert stat.S_IMODE((ground.root / "shop.py").stat().st_mode) == 0o750
    assert ground.read("old/junk.py") == "JUNK = 1\n"
    assert not (ground.root / "added/__init__.py").exists()
    assert not (ground.root / "store.py").exists()
