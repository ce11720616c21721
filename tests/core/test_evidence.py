"""Evidence is bounded and deterministic, whatever the tests print."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.core.evidence import PROFILE_BINS, EvidenceLimits, compile_evidence, fold
from veriloop_tui.core.excerpt import excerpt, one_line, sanitise
from veriloop_tui.core.obligation import CheckId, CheckKind, CheckOutcome, Ranked
from veriloop_tui.core.rank import baseline_rank, make_rank
from veriloop_tui.core.transition import Decision, compare

LIMITS = EvidenceLimits(text=500, excerpt=100)


def measured(count: int, failing: int, text: str) -> Ranked:
    run = tuple(
        CheckOutcome(
            CheckId("t", CheckKind.TEST, f"{text[:50]}{i}"), int(i < failing), excerpt=text
        )
        for i in range(count)
    )
    return Ranked((run,), (frozenset({"t"}),))


@given(st.text(max_size=2000), st.integers(0, 6), st.integers(0, 6))
def test_evidence_keeps_its_bounds_and_is_the_same_for_the_same_inputs(
    text: str, before: int, after: int
) -> None:
    incumbent = baseline_rank(measured(6, before, text))
    candidate = measured(6, after, text)
    transition = compare(incumbent, candidate)
    made = [
        compile_evidence(incumbent, transition, Decision.RULE_REJECTED, candidate.runs[0], LIMITS)
        for _ in range(2)
    ]
    assert made[0] == made[1]
    assert len(made[0].text) <= LIMITS.text
    assert "\x1b" not in made[0].text
    assert len(made[0].profile_before) == PROFILE_BINS
    assert made[0].share_improved + made[0].share_worsened + made[0].share_equal in (0.0, 1.0)


def test_a_hundred_megabytes_of_output_make_a_short_excerpt() -> None:
    flood = "x" * 100_000_000
    assert len(excerpt(flood, 200)) == 200


def test_worsened_checks_are_quoted_first() -> None:
    incumbent = make_rank(
        {CheckId("t", CheckKind.TEST, name): value for name, value in (("a", 1), ("b", 0))}
    )
    run = (
        CheckOutcome(CheckId("t", CheckKind.TEST, "a"), 1, excerpt="still failing"),
        CheckOutcome(CheckId("t", CheckKind.TEST, "b"), 1, excerpt="broken now"),
    )
    transition = compare(incumbent, Ranked((run,), (frozenset({"t"}),)))
    text = compile_evidence(incumbent, transition, Decision.RULE_REJECTED, run).text
    assert text.index("broken now") < text.index("still failing")


@given(st.text())
def test_sanitised_text_has_no_escape_control_or_surrogate(text: str) -> None:
    clean = sanitise(text)
    assert not any((ord(c) < 32 and c not in "\t\n") or 0x7F <= ord(c) <= 0x9F for c in clean)
    clean.encode("utf-8")


@given(st.text(), st.integers(1, 100))
def test_excerpts_and_lines_keep_their_limit(text: str, limit: int) -> None:
    assert len(excerpt(text, limit)) <= limit
    line = one_line(text, limit)
    assert len(line) <= limit
    assert "\n" not in line


def test_escape_sequences_are_taken_out_with_their_text() -> None:
    assert sanitise("a\x1b[31mred\x1b[0m\x1b]0;title\x07b\x1b]52;c;AAAA\x1b\\c") == "aredbc"


def test_a_wide_rank_folds_to_the_same_length_and_sum() -> None:
    rank = make_rank({CheckId("t", CheckKind.TEST, f"{i:04}"): i % 3 for i in range(1000)})
    assert len(fold(rank)) == PROFILE_BINS
    assert sum(fold(rank)) == rank.total
