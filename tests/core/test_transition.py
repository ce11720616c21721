"""The rule of design: labels, the componentwise order, and the bound on commits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from veriloop_tui.core.obligation import (
    BudgetLimits,
    CheckId,
    CheckKind,
    CheckOutcome,
    Contract,
    Obligation,
    Partial,
    Ranked,
    Unrankable,
)
from veriloop_tui.core.rank import Rank, baseline_rank, make_rank
from veriloop_tui.core.transition import Label, compare, needs_another_run

NAMES = ("a", "b", "c", "d")


def check(name: str, kind: CheckKind = CheckKind.TEST) -> CheckId:
    return CheckId("t", kind, name)


def outcome(
    name: str,
    value: int,
    kind: CheckKind = CheckKind.TEST,
    *,
    skipped: bool = False,
    group: str = "",
) -> CheckOutcome:
    return CheckOutcome(check(name, kind), value, skipped=skipped, group=group)


def ran(*runs: tuple[CheckOutcome, ...]) -> Ranked:
    return Ranked(runs, tuple(frozenset({"t"}) for _ in runs))


def vector(*values: int) -> tuple[CheckOutcome, ...]:
    return tuple(outcome(name, value) for name, value in zip(NAMES, values, strict=False))


values = st.integers(0, 3)
outcomes = st.builds(
    lambda name, kind, value, skipped, group: CheckOutcome(
        check(name, kind), value, skipped=skipped and kind is CheckKind.TEST, group=group
    ),
    st.sampled_from(NAMES),
    st.sampled_from(list(CheckKind)),
    values,
    st.booleans(),
    st.sampled_from(("", *NAMES)),
)
runs = st.lists(outcomes, max_size=10).map(tuple)
measurements = st.lists(runs, min_size=1, max_size=3).map(lambda r: ran(*r))
stable = runs.map(lambda run: ran(run, run))


@st.composite
def neighbour(draw: st.DrawFn, of: Ranked) -> Ranked:
    """A measurement near `of`, so that progress is not a rarity."""
    run: list[CheckOutcome] = []
    for before in of.runs[0]:
        move = draw(st.sampled_from(("keep", "keep", "keep", "lower", "lower", "raise", "drop")))
        if move == "drop":
            continue
        step = {"keep": 0, "lower": -1, "raise": 1}[move]
        run.append(replace(before, value=max(0, before.value + step)))
    if draw(st.booleans()):
        run.append(draw(outcomes))
    hidden = [o for o in of.runs[0] if o.check.kind is CheckKind.COLLECT and o.value]
    if draw(st.booleans()) and hidden:
        repaired = draw(st.sampled_from(hidden)).check
        run = [o for o in run if o.check != repaired]
        run.append(CheckOutcome(repaired, 0))
        run.append(outcome("revealed", draw(values), group=repaired.name))
    return ran(tuple(run), *((tuple(run),) if draw(st.booleans()) else ()))


pairs = measurements.flatmap(lambda base: st.tuples(st.just(base), neighbour(base)))
walks = measurements.flatmap(
    lambda base: st.tuples(st.just(base), st.lists(neighbour(base), max_size=8))
)


@pytest.mark.parametrize(
    ("candidate", "label"),
    [
        ((0, 0, 1), Label.STRICT_PROGRESS),
        ((1, 0, 0), Label.INCOMPARABLE),
        ((0, 1, 1), Label.NO_PROGRESS),
        ((0, 1, 2), Label.PROTECTED_REGRESSION),
    ],
)
def test_the_candidates_of_the_design_come_out_as_written(
    candidate: tuple[int, ...], label: Label
) -> None:
    incumbent = baseline_rank(ran(vector(0, 1, 1)))
    assert compare(incumbent, ran(vector(*candidate))).label is label


def test_the_sum_may_fall_and_the_candidate_still_not_commit() -> None:
    incumbent = baseline_rank(ran(vector(0, 1, 1)))
    transition = compare(incumbent, ran(vector(1, 0, 0)))
    assert transition.rank is not None
    assert transition.rank.total < incumbent.total
    assert not transition.may_commit


@given(pairs)
def test_a_commit_worsens_no_check_of_the_incumbent(pair: tuple[Ranked, Ranked]) -> None:
    base, later = pair
    incumbent = baseline_rank(base)
    transition = compare(incumbent, later)
    if not transition.may_commit:
        return
    assert transition.rank is not None
    for name, before in incumbent.entries:
        assert transition.rank.values[name] <= before
    assert any(transition.rank.values[name] < before for name, before in incumbent.entries)
    for name, before_values in incumbent.flaky:
        assert transition.rank.quarantined[name] == before_values


def test_the_generated_pairs_include_commits_that_reveal_and_quarantine() -> None:
    find(pairs, lambda pair: compare(baseline_rank(pair[0]), pair[1]).may_commit)
    find(
        pairs,
        lambda pair: bool(compare(baseline_rank(pair[0]), pair[1]).revealed),
        settings=settings(max_examples=5000),
    )
    find(pairs, lambda pair: bool(baseline_rank(pair[0]).flaky))


@given(walks)
def test_commits_are_at_most_the_first_sum_plus_what_collection_revealed(
    walk: tuple[Ranked, list[Ranked]],
) -> None:
    base, candidates = walk
    incumbent = baseline_rank(base)
    first, revealed, commits = incumbent.total, 0, 0
    for candidate in candidates:
        transition = compare(incumbent, candidate)
        if not transition.may_commit:
            continue
        assert transition.rank is not None
        revealed += sum(transition.rank.values.get(name, 0) for name in transition.revealed)
        incumbent = transition.rank
        commits += 1
    assert commits <= first + revealed


@given(stable.flatmap(lambda base: st.tuples(st.just(base), neighbour(base))))
def test_nothing_progresses_both_ways(pair: tuple[Ranked, Ranked]) -> None:
    one, other = pair
    there = compare(baseline_rank(one), other)
    back = compare(baseline_rank(other), one)
    assert not (there.may_commit and back.may_commit)


@given(pairs)
def test_each_pair_gets_exactly_one_label_that_its_checks_explain(
    pair: tuple[Ranked, Ranked],
) -> None:
    base, later = pair
    transition = compare(baseline_rank(base), later)
    expected = {
        (True, False): Label.STRICT_PROGRESS,
        (False, False): Label.NO_PROGRESS,
        (False, True): Label.PROTECTED_REGRESSION,
        (True, True): Label.INCOMPARABLE,
    }
    if transition.label is not Label.UNRANKABLE:
        assert transition.label is expected[bool(transition.improved), bool(transition.worsened)]
        assert not set(transition.improved) & set(transition.worsened)
    assert compare(baseline_rank(base), later) == transition


@given(stable)
def test_the_same_result_is_no_progress(base: Ranked) -> None:
    assert compare(baseline_rank(base), base).label in (Label.NO_PROGRESS, Label.UNRANKABLE)


@pytest.mark.parametrize("gone", [(), (outcome("a", 0, skipped=True),)])
def test_a_passing_test_that_is_gone_or_skipped_is_a_worsening(
    gone: tuple[CheckOutcome, ...],
) -> None:
    incumbent = baseline_rank(ran(vector(0, 1)))
    transition = compare(incumbent, ran((*gone, outcome("b", 0))))
    assert transition.worsened == (check("a"),)
    assert transition.label is Label.INCOMPARABLE


@pytest.mark.parametrize("gone", [(), (outcome("a", 0, skipped=True),)])
def test_a_failing_test_that_is_gone_or_skipped_stays_failing(
    gone: tuple[CheckOutcome, ...],
) -> None:
    incumbent = baseline_rank(ran(vector(1, 1)))
    transition = compare(incumbent, ran((*gone, outcome("b", 0))))
    assert transition.label is Label.STRICT_PROGRESS
    assert transition.rank is not None
    assert transition.rank.values[check("a")] == 1
    assert not transition.zero_rank


def test_a_diagnostic_that_is_gone_is_satisfied() -> None:
    incumbent = baseline_rank(ran((outcome("x", 2, CheckKind.COUNTED), outcome("a", 0))))
    transition = compare(incumbent, ran((outcome("a", 0),)))
    assert transition.improved == (check("x", CheckKind.COUNTED),)
    assert transition.zero_rank


def test_a_new_passing_check_earns_nothing_and_a_new_failing_one_is_a_worsening() -> None:
    incumbent = baseline_rank(ran(vector(1)))
    assert compare(incumbent, ran(vector(1, 0))).label is Label.NO_PROGRESS
    assert compare(incumbent, ran(vector(1, 1))).label is Label.PROTECTED_REGRESSION


def test_tests_revealed_by_a_repaired_import_do_not_count_either_way() -> None:
    incumbent = baseline_rank(ran((outcome("m", 1, CheckKind.COLLECT),)))
    candidate = ran(
        (
            outcome("m", 0, CheckKind.COLLECT),
            outcome("a", 1, group="m"),
            outcome("b", 0, group="m"),
        )
    )
    transition = compare(incumbent, candidate)
    assert transition.label is Label.STRICT_PROGRESS
    assert transition.revealed == (check("a"), check("b"))
    assert transition.rank is not None
    assert transition.rank.values[check("a")] == 1


def test_a_new_failing_test_of_a_file_that_was_collected_before_is_not_revealed() -> None:
    incumbent = baseline_rank(ran((outcome("m", 0, CheckKind.COLLECT), outcome("a", 1))))
    new = outcome("b", 1, group="m")
    candidate = ran((outcome("m", 0, CheckKind.COLLECT), outcome("a", 0), new))
    assert compare(incumbent, candidate).label is Label.INCOMPARABLE


def test_a_check_that_varies_on_the_incumbent_is_quarantined_and_never_improves() -> None:
    incumbent = baseline_rank(ran(vector(0, 1), vector(1, 1)))
    assert incumbent.quarantined == {check("a"): (0, 1)}
    assert compare(incumbent, ran(vector(0, 1))).label is Label.NO_PROGRESS
    fixed = compare(incumbent, ran(vector(0, 0)))
    assert fixed.improved == (check("b"),)
    assert not fixed.zero_rank


def test_a_quarantined_check_that_fails_every_repeat_is_a_worsening() -> None:
    incumbent = baseline_rank(ran(vector(0, 1), vector(1, 1)))
    assert compare(incumbent, ran(vector(1, 0), vector(0, 0))).may_commit
    assert compare(incumbent, ran(vector(1, 0), vector(1, 0))).worsened == (check("a"),)


@pytest.mark.parametrize("before", [0, 1])
def test_a_stable_check_that_varies_on_the_candidate_is_a_worsening(before: int) -> None:
    incumbent = baseline_rank(ran(vector(before, 1), vector(before, 1)))
    transition = compare(incumbent, ran(vector(0, 0), vector(1, 0)))
    assert transition.worsened == (check("a"),)


def with_exit(code: int, *values: int) -> tuple[CheckOutcome, ...]:
    return (*vector(*values), outcome("exit", code, CheckKind.EXIT))


EXIT = check("exit", CheckKind.EXIT)


def test_a_failing_test_that_vanishes_does_not_improve_the_exit_check() -> None:
    incumbent = baseline_rank(ran(with_exit(1, 0, 1)))
    transition = compare(incumbent, ran(with_exit(0, 0)))
    assert transition.label is Label.NO_PROGRESS
    assert transition.rank is not None
    assert transition.rank.values == incumbent.values


def test_the_exit_check_improves_once_every_test_of_its_obligation_passes() -> None:
    incumbent = baseline_rank(ran(with_exit(1, 0, 1)))
    transition = compare(incumbent, ran(with_exit(0, 0, 0)))
    assert set(transition.improved) == {check("b"), EXIT}
    # An exit code that no test explains, as of a missed coverage, is progress by itself.
    unexplained = baseline_rank(ran(with_exit(1, 0, 0)))
    assert compare(unexplained, ran(with_exit(0, 0, 0))).improved == (EXIT,)
    assert compare(incumbent, ran(with_exit(1, 0, 0))).improved == (check("b"),)


def test_an_exit_code_that_varies_with_a_quarantined_test_alone_forbids_nothing() -> None:
    incumbent = baseline_rank(ran(with_exit(1, 0, 1), with_exit(1, 1, 1)))
    assert set(incumbent.quarantined) == {check("a")}
    mended = compare(incumbent, ran(with_exit(1, 1, 0), with_exit(0, 0, 0)))
    assert set(mended.improved) == {check("b"), EXIT}
    assert mended.rank is not None
    later = compare(mended.rank, ran(with_exit(1, 1, 0), with_exit(0, 0, 0)))
    assert later.label is Label.NO_PROGRESS


def test_an_exit_code_that_no_failing_test_explains_is_a_worsening() -> None:
    incumbent = baseline_rank(ran(with_exit(0, 0)))
    assert compare(incumbent, ran(with_exit(1, 0))).worsened == (EXIT,)
    flaky = baseline_rank(ran(with_exit(1, 0, 1), with_exit(1, 1, 1)))
    mended = compare(flaky, ran(with_exit(0, 0, 0), with_exit(0, 0, 0))).rank
    assert mended is not None
    assert compare(mended, ran(with_exit(1, 0, 0))).worsened == (EXIT,)
    gone = ran((outcome("b", 0), outcome("exit", 1, CheckKind.EXIT)))
    assert EXIT in compare(mended, gone).worsened


CONTRACT = Contract((Obligation("t", ("true",), "junit", repeats=3),), (), BudgetLimits())


def test_an_improved_check_wants_a_second_run() -> None:
    incumbent = baseline_rank(ran(vector(0, 1)))
    assert needs_another_run(incumbent, ran(vector(0, 0)), CONTRACT) == {"t"}
    assert not needs_another_run(incumbent, ran(vector(0, 0), vector(0, 0)), CONTRACT)
    assert not needs_another_run(incumbent, ran(vector(0, 1)), CONTRACT)


def test_a_sealed_fate_wants_no_second_run() -> None:
    incumbent = baseline_rank(ran(vector(0, 1)))
    assert not needs_another_run(incumbent, ran(vector(1, 0)), CONTRACT)


def test_a_quarantined_check_that_fails_is_run_until_it_passes_or_all_repeats_failed() -> None:
    incumbent = baseline_rank(ran(vector(0, 1), vector(1, 1)))
    once, failing, passing = vector(1, 1), vector(1, 1), vector(0, 1)
    assert needs_another_run(incumbent, ran(once, failing), CONTRACT) == {"t"}
    assert not needs_another_run(incumbent, ran(once, passing), CONTRACT)
    assert not needs_another_run(incumbent, ran(once, failing, failing), CONTRACT)


def test_an_obligation_that_did_not_run_makes_the_candidate_unrankable() -> None:
    incumbent = make_rank({check("x", CheckKind.COUNTED): 1, CheckId("u", CheckKind.EXIT, "e"): 1})
    measured = Ranked(((),), (frozenset({"u"}),))
    assert compare(incumbent, measured).label is Label.UNRANKABLE


def test_an_unknown_result_is_never_satisfied() -> None:
    incumbent = baseline_rank(ran(vector(1)))
    assert compare(incumbent, Unrankable("t", "timed out")).label is Label.UNRANKABLE
    partial = compare(incumbent, Partial((check("a"),)))
    assert partial.label is Label.OPEN
    assert not partial.may_commit


def test_a_check_skipped_at_the_baseline_is_outside_the_rank() -> None:
    incumbent = baseline_rank(ran((outcome("a", 0, skipped=True), outcome("b", 1))))
    assert incumbent == Rank(((check("b"), 1),))
    assert compare(incumbent, ran(vector(0, 0))).zero_rank


def test_a_test_reported_twice_counts_with_its_worst_outcome() -> None:
    for first, second in ((0, 1), (1, 0)):
        twice = ran((outcome("a", first), outcome("a", second)))
        assert baseline_rank(twice).values == {check("a"): 1}


def test_all_zeros_without_progress_is_no_completion() -> None:
    incumbent = baseline_rank(ran(vector(0, 0)))
    assert not compare(incumbent, ran(vector(0, 0))).zero_rank


def test_a_rank_has_no_negative_values() -> None:
    with pytest.raises(ValueError, match="negative"):
        make_rank({check("a"): -1})
