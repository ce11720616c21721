"""The fold from events to what the screen shows."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from functools import reduce
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tui.fake_session import MODEL, FakeSession, Planned, a_diff, check, measured
from tests.tui.stubs import YES, never
from veriloop_tui.core.event import (
    ApprovalRequested,
    AttemptEnded,
    AttemptStarted,
    CandidateParsed,
    EpochStarted,
    Event,
    Notice,
    Outcome,
    ProposalDelta,
    ProposalFinished,
    RolledBack,
    RunEnded,
    RunStarted,
)
from veriloop_tui.core.obligation import CheckId, CheckKind
from veriloop_tui.core.transition import Decision, Label
from veriloop_tui.tui import fold as module
from veriloop_tui.tui.fold import as_history, at_rest, coalesced, fold
from veriloop_tui.tui.view import Attempt, Phase, RunLine, View

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x9b2J\u202eevil\x00\x1b[?1049h"
FORBIDDEN = frozenset("\x1b\x9b\x00\x07\r\u202e")


def a_run() -> list[Event]:
    """All events of one played run, with every kind of ending an attempt has."""
    return list(FakeSession().run("mend it", YES, never))


def an_end(**changes: object) -> AttemptEnded:
    """An ended attempt, with some fields changed."""
    ended = next(event for event in a_run() if isinstance(event, AttemptEnded))
    return replace(ended, **changes)  # type: ignore[arg-type]


def all_text(value: object) -> list[str]:
    """Every string anywhere in a dataclass."""
    if isinstance(value, str):
        return [value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return [text for name in names for text in all_text(getattr(value, name))]
    if isinstance(value, tuple):
        return [text for item in value for text in all_text(item)]
    return []


def test_a_run_leaves_its_attempts_and_its_outcome_in_the_timeline() -> None:
    view = reduce(fold, a_run(), View())
    heads = [entry for entry in view.timeline if isinstance(entry, RunLine)]
    attempts = [entry for entry in view.timeline if isinstance(entry, Attempt)]
    assert [(head.task, head.outcome) for head in heads] == [("mend it", "budget-spent")]
    assert [(a.number, a.label, a.rank_before, a.rank_after) for a in attempts] == [
        (1, Label.NO_PROGRESS, 6, 6),
        (2, Label.STRICT_PROGRESS, 6, 5),
        (3, Label.INCOMPARABLE, 5, 5),
        (4, Label.INVALID, 5, None),
        (5, Label.STRICT_PROGRESS, 5, 4),
    ]
    assert view.phase is Phase.IDLE
    assert view.current is None
    assert view.first_total == 6
    assert view.incumbent is not None
    assert view.incumbent.total == 4
    assert view.spent.attempts == 5


def test_the_answer_grows_with_its_pieces_and_is_then_replaced_by_the_whole() -> None:
    started = fold(View(), AttemptStarted(attempt=1, form="function", target="f", seed=1))
    growing = reduce(
        fold, [ProposalDelta(attempt=1, text="ab"), ProposalDelta(attempt=1, text="c")], started
    )
    assert growing.current is not None
    assert growing.current.answer == "abc"
    assert growing.phase is Phase.PROPOSING
    finished = next(event for event in a_run() if isinstance(event, ProposalFinished))
    ended = fold(growing, replace(finished, text="prefilled abc"))
    assert ended.current is not None
    assert ended.current.answer == "prefilled abc"
    assert ended.usage == finished.usage


def test_a_long_answer_keeps_its_end_while_it_streams() -> None:
    view = fold(View(), AttemptStarted(attempt=1, form="file", target="", seed=1))
    for number in range(3_000):
        view = fold(view, ProposalDelta(attempt=1, text=f"line {number}\n"))
    assert view.current is not None
    assert len(view.current.answer) == module.ANSWER
    assert view.current.answer.endswith("line 2999\n")


def test_an_escape_sequence_cannot_hide_the_rest_of_a_diff() -> None:
    hiding = a_diff("f", "x = 1  # \x1b]0;") + "\n+import evil"
    asked = ApprovalRequested(attempt=1, improved=(), diff=hiding, warnings=())
    view = fold(View(), asked)
    assert view.current is not None
    assert "+import evil" in view.current.diff
    assert "␛]0;" in view.current.diff


def test_a_carriage_return_cannot_forge_a_line_of_a_diff() -> None:
    parsed = CandidateParsed(attempt=1, paths=("f.py",), diff="+evil()\r-evil()")
    view = fold(View(), parsed)
    assert view.current is not None
    assert view.current.diff == "+evil()␍-evil()"


@pytest.mark.parametrize("diff", ["+x\n" * 40_000, "+x\n[...]\n+y"])
def test_a_diff_that_is_not_shown_whole_says_so_in_the_question(diff: str) -> None:
    view = fold(View(), ApprovalRequested(attempt=1, improved=(), diff=diff, warnings=()))
    assert view.question is not None
    assert view.question.cut
    assert view.current is not None
    assert len(view.current.diff) <= module.DIFF


def test_hostile_text_of_every_event_is_harmless_in_the_view() -> None:
    hostile = CheckId(HOSTILE, CheckKind.TEST, HOSTILE)
    base = measured(("f",), lambda _: HOSTILE)
    line = replace(base.obligations[0], name=HOSTILE, quarantined=(hostile,))
    ended = an_end(improved=(hostile,), worsened=(hostile,), reason=HOSTILE, bundle=HOSTILE)
    run = next(event for event in a_run() if isinstance(event, RunStarted))
    end = next(event for event in a_run() if isinstance(event, RunEnded))
    events: list[Event] = [
        replace(run, task=HOSTILE, model=replace(MODEL, name=HOSTILE, quant=HOSTILE, path=HOSTILE)),
        replace(base, obligations=(line,)),
        EpochStarted(epoch=1, reason=HOSTILE, paths=(HOSTILE,)),
        RolledBack(target=HOSTILE, previous=HOSTILE, bundle=HOSTILE, paths=(HOSTILE,)),
        AttemptStarted(attempt=1, form=HOSTILE, target=HOSTILE, seed=1),
        ProposalDelta(attempt=1, text=HOSTILE),
        CandidateParsed(attempt=1, paths=(HOSTILE,), diff=HOSTILE),
        ApprovalRequested(attempt=1, improved=(hostile,), diff=HOSTILE, warnings=(HOSTILE,)),
        replace(ended, evidence=replace(ended.evidence, text=HOSTILE)),
        Notice(text=HOSTILE),
        replace(end, detail=HOSTILE),
    ]
    view = View()
    for event in events:
        view = fold(view, event)
        model = view.model
        shown = replace(view, model=None if model is None else replace(model, file_digest=""))
        for text in all_text(shown):
            assert not FORBIDDEN & set(text), (event.type, text)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"decision": Decision.COMMITTED, "label": Label.STRICT_PROGRESS, "zero_rank": True},
            "Committed: 1 check (test_a) improved, none got worse. "
            "Every check of this contract is now satisfied.",
        ),
        (
            {"label": Label.INCOMPARABLE, "worsened": (check("b"), check("c"))},
            "Not committed: 1 check (test_a) improved, but 2 checks (test_b, test_c) got worse.",
        ),
        (
            {"label": Label.PROTECTED_REGRESSION, "improved": (), "worsened": (check("b"),)},
            "Not committed: 1 check (test_b) got worse, none improved.",
        ),
        (
            {"label": Label.NO_PROGRESS, "repeated": True},
            "Not committed: no check improved. "
            "(The same change was rejected before; it was not run again.)",
        ),
        (
            {"label": Label.UNRANKABLE, "reason": "tests: took longer than 5 s"},
            "Not committed: its effect could not be measured: tests: took longer than 5 s.",
        ),
        (
            {"decision": Decision.USER_REJECTED, "reason": "keep the signature"},
            "Not committed: you rejected it: keep the signature.",
        ),
        (
            {"decision": Decision.STALE},
            "Not committed: the files it was made for changed meanwhile.",
        ),
    ],
)
def test_the_verdict_says_in_one_sentence_what_happened_and_why(
    changes: dict[str, object], sentence: str
) -> None:
    view = fold(View(), an_end(**{"improved": (check("a"),), **changes}))
    last = view.timeline[-1]
    assert isinstance(last, Attempt)
    assert last.verdict == sentence
    assert view.news[-1].text.endswith(sentence)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_a_sentence(outcome: Outcome) -> None:
    end = next(event for event in a_run() if isinstance(event, RunEnded))
    view = fold(View(), replace(end, outcome=outcome))
    assert view.news[-1].text.endswith("2 commits in 5 attempts, rank 6 → 4.")


def test_earlier_runs_leave_a_timeline_but_claim_nothing_of_the_present() -> None:
    broken_off = a_run()[:40]
    view = as_history(reduce(fold, broken_off, View()))
    assert view.phase is Phase.IDLE
    assert view.incumbent is None
    assert view.budget is None
    assert view.current is None
    assert len(view.timeline) > 1


def test_thousands_of_attempts_keep_the_newest_and_lose_old_details_first() -> None:
    view = View()
    for number in range(2_100):
        view = fold(view, an_end(attempt=number))
    assert len(view.timeline) <= module.TIMELINE
    assert view.dropped + len(view.timeline) == 2_100
    detailed = [e for e in view.timeline if isinstance(e, Attempt) and not e.forgotten]
    assert len(detailed) == module.DETAILED
    assert detailed[-1].number == 2_099


def test_pieces_are_joined_without_changing_what_is_folded() -> None:
    events = a_run()
    joined = coalesced(events)
    assert len(joined) < len(events) / 2
    half = [event for event in events[:20] if not isinstance(event, ProposalFinished)]
    assert sum(isinstance(event, ProposalDelta) for event in half) > 3
    assert reduce(fold, coalesced(half), View()) == reduce(fold, half, View())
    assert reduce(fold, joined, View()) == reduce(fold, events, View())


TEXT = st.text(max_size=40) | st.just(HOSTILE)
NUMBER = st.integers(min_value=0, max_value=6)


def shuffled(event: Event) -> st.SearchStrategy[Event]:
    """The event with other text, numbers, labels and decisions in it."""
    changes: dict[str, st.SearchStrategy[object]] = {}
    for field in dataclasses.fields(event):
        held = getattr(event, field.name)
        if field.name == "type":
            continue
        if isinstance(held, Label | Decision | Outcome):
            changes[field.name] = st.sampled_from(list(type(held)))
        elif isinstance(held, bool):
            changes[field.name] = st.booleans()
        elif isinstance(held, int):
            changes[field.name] = NUMBER
        elif isinstance(held, str):
            changes[field.name] = TEXT
        elif field.name in ("improved", "worsened", "revealed"):
            ids = st.builds(CheckId, TEXT, st.sampled_from(list(CheckKind)), TEXT)
            changes[field.name] = st.lists(ids, max_size=5).map(tuple)
    return st.fixed_dictionaries(changes).map(lambda new: replace(event, **new))  # type: ignore[arg-type]


SAMPLES: dict[type[Event], Event] = {type(event): event for event in a_run()}
SAMPLES[Notice] = Notice(text="x")
SAMPLES[EpochStarted] = EpochStarted(epoch=1, reason="x", paths=("a",))
SAMPLES[RolledBack] = RolledBack(target="x", previous="y", bundle="z", paths=("a",))
EVENTS = st.one_of([shuffled(event) for event in SAMPLES.values()])


def test_the_random_events_cover_the_whole_union() -> None:
    assert set(SAMPLES) == set(get_args(Event))


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENTS, max_size=40))
def test_any_sequence_of_events_folds_to_a_bounded_harmless_view(events: list[Event]) -> None:
    view = at_rest(reduce(fold, events, View()))
    serials = [entry.serial for entry in view.timeline]
    assert serials == sorted(set(serials))
    assert view.phase is Phase.IDLE
    assert len(view.news) <= module.NEWS
    for text in all_text(replace(view, model=None)):
        assert len(text) <= module.DIFF
        assert not FORBIDDEN & set(text)


def test_a_planned_attempt_that_breaks_a_check_names_it() -> None:
    plan = (Planned("clamp", Label.INCOMPARABLE, worsened=("sign",)),)
    view = reduce(fold, FakeSession(plan=plan).run("x", YES, never), View())
    attempt = view.timeline[-1]
    assert isinstance(attempt, Attempt)
    assert attempt.worsened.shown == ("tests:tests/test_numbers.py::test_sign",)
