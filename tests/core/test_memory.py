"""Exploration memory: bounded, and recalls only what was finally rejected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.core.memory import Displacement, ExplorationMemory, repeated
from veriloop_tui.core.obligation import CheckId, CheckKind
from veriloop_tui.core.snapshot import SnapshotId
from veriloop_tui.core.transition import Decision, Label

BASE, OTHER, TREE = SnapshotId("base"), SnapshotId("other"), SnapshotId("tree")


def entry(
    label: Label = Label.INCOMPARABLE,
    decision: Decision = Decision.RULE_REJECTED,
    base: SnapshotId = BASE,
    tree: str = TREE,
) -> Displacement:
    worsened = (CheckId("t", CheckKind.TEST, "a"),)
    return Displacement(base, tree, "answer", label, decision, worsened, "diff")


@pytest.mark.parametrize(
    "label", [Label.NO_PROGRESS, Label.PROTECTED_REGRESSION, Label.INCOMPARABLE]
)
def test_a_fully_ranked_rejection_is_recalled_with_its_label(label: Label) -> None:
    memory = ExplorationMemory().remember(entry(label))
    found = memory.recall(BASE, TREE)
    assert found is not None
    assert repeated(found).label is label
    assert not repeated(found).may_commit


@pytest.mark.parametrize("label", [Label.UNRANKABLE, Label.OPEN, Label.INVALID])
def test_what_was_not_ranked_to_the_end_may_be_tried_again(label: Label) -> None:
    assert ExplorationMemory().remember(entry(label)).recall(BASE, TREE) is None


def test_a_change_that_the_user_turned_down_is_recalled_although_it_was_progress() -> None:
    memory = ExplorationMemory().remember(entry(Label.STRICT_PROGRESS, Decision.USER_REJECTED))
    assert memory.recall(BASE, TREE) is not None


def test_a_stale_candidate_is_not_recalled() -> None:
    memory = ExplorationMemory().remember(entry(Label.STRICT_PROGRESS, Decision.STALE))
    assert memory.recall(BASE, TREE) is None


def test_a_rejection_against_another_incumbent_says_nothing() -> None:
    memory = ExplorationMemory().remember(entry(base=OTHER))
    assert memory.recall(BASE, TREE) is None
    assert memory.against(OTHER) == memory.entries
    assert memory.against(BASE) == ()


@given(st.integers(1, 20), st.integers(0, 60))
def test_memory_keeps_the_latest_up_to_its_limit(limit: int, count: int) -> None:
    memory = ExplorationMemory(limit=limit)
    for number in range(count):
        memory = memory.remember(entry(tree=str(number)))
    kept = [int(one.tree) for one in memory.entries]
    assert kept == list(range(max(0, count - limit), count))


def test_the_digest_follows_the_entries() -> None:
    empty = ExplorationMemory()
    assert empty.memory_digest == ExplorationMemory().memory_digest
    assert empty.remember(entry()).memory_digest != empty.memory_digest
