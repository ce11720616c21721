"""Roll-back on fakes: only what the program wrote, and reversible."""

from __future__ import annotations

import pytest

from tests.loop.fakes import FakeLedger, FakeProposer, FakeWorkspace
from tests.loop.test_controller import A_GOOD, BOTH_BAD, BOTH_GOOD, Bench
from veriloop_tui.core.bundle import CertifiedBundle, Origin
from veriloop_tui.core.event import RolledBack
from veriloop_tui.core.snapshot import Write
from veriloop_tui.errors import SnapshotNotFound, UsageError
from veriloop_tui.loop.rollback import plan_rollback, roll_back


def finished_run() -> tuple[FakeWorkspace, FakeLedger, tuple[CertifiedBundle, ...]]:
    """Two commits: `app.py` repaired in two steps, and a file the second one created."""
    created = (*BOTH_GOOD, Write("new.py", b"made by the model"))
    bench = Bench(FakeProposer(A_GOOD, created))
    bench.run()
    return bench.workspace, bench.ledger, bench.ledger.bundles()


def back(workspace: FakeWorkspace, ledger: FakeLedger, target: str) -> RolledBack:
    plan = plan_rollback(workspace, ledger.bundles(), target)
    return roll_back(plan, "r", ledger, workspace, "0", "here")


def test_going_back_restores_what_commits_changed_and_deletes_what_they_created() -> None:
    workspace, ledger, bundles = finished_run()
    event = back(workspace, ledger, bundles[0].bundle_id)
    assert workspace.live == {"app.py": BOTH_BAD}
    assert event.paths == ("app.py", "new.py")
    assert ledger.bundles()[-1].binding.origin is Origin.RESTORED


def test_a_file_the_user_made_meanwhile_stays() -> None:
    workspace, ledger, bundles = finished_run()
    workspace.live["mine.txt"] = b"mine"
    back(workspace, ledger, bundles[0].bundle_id)
    assert workspace.live == {"app.py": BOTH_BAD, "mine.txt": b"mine"}


def test_an_edit_of_the_users_that_would_be_overwritten_is_named_and_kept_in_a_bundle() -> None:
    workspace, ledger, bundles = finished_run()
    workspace.live["app.py"] = b"edited by hand"
    plan = plan_rollback(workspace, ledger.bundles(), bundles[0].bundle_id)
    assert plan.overwrites == ("app.py",)
    event = roll_back(plan, "r", ledger, workspace, "0", "here")
    back(workspace, ledger, event.previous)
    assert workspace.live["app.py"] == b"edited by hand"


def test_a_roll_back_can_be_undone() -> None:
    workspace, ledger, bundles = finished_run()
    after = dict(workspace.live)
    event = back(workspace, ledger, bundles[0].bundle_id)
    back(workspace, ledger, event.previous)
    assert workspace.live == after


def test_an_unknown_bundle_and_a_roll_back_to_the_present_are_refused() -> None:
    workspace, ledger, bundles = finished_run()
    with pytest.raises(SnapshotNotFound):
        back(workspace, ledger, "nothing")
    with pytest.raises(UsageError):
        back(workspace, ledger, bundles[-1].bundle_id)
