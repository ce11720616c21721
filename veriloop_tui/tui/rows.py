"""Checks, attempts, diffs and evidence as styled text. Hostile text is never read as markup."""

from __future__ import annotations

from textual.content import Content

from veriloop_tui.core.transition import Decision, Label
from veriloop_tui.tui.paint import ASK, BAD, GOOD, LOUD, MUTED, Part, joined
from veriloop_tui.tui.view import Attempt, Entry, FailingLine, ObligationLine, Phase, RunLine

METER = 6


def obligation_row(line: ObligationLine) -> Content:
    """`✗ tests ━━━━━━──── rank 3 · 12 checks`."""
    satisfied = max(0, line.checks - line.unsatisfied)
    filled = METER * satisfied // line.checks if line.checks else 0
    mark = ("✓ ", GOOD) if line.total == 0 and not line.quarantined.count else ("✗ ", BAD)
    return Content.assemble(
        mark,
        (line.name, LOUD),
        (f"  rank {line.total:,}", GOOD if line.total == 0 else BAD),
        (f"  {satisfied:,}/{line.checks:,} ", MUTED),
        ("━" * filled, GOOD),
        ("─" * (METER - filled), MUTED),
    )


def failing_row(line: FailingLine) -> Content:
    """The end of a check's name first, as its beginning is mostly a path."""
    head, _, tail = line.name.rpartition("::")
    times = f" ×{line.value:,}" if line.value > 1 else ""
    return Content.assemble("  ", (tail or line.name, ""), (times, BAD), (f"  {head}", MUTED))


def more_row(left: int) -> Content:
    """How many failing checks have no row of their own."""
    return Content.styled(f"  and {left:,} more", MUTED)


def flaky_row(name: str) -> Content:
    """A quarantined check."""
    return Content.assemble("  ", ("~ ", ASK), name, ("  flaky, cannot improve a rank", MUTED))


def entry_row(entry: Entry, current: Phase | None) -> Content:
    """One line of the timeline; `current` is the phase of the attempt that runs now."""
    if isinstance(entry, RunLine):
        end = f"  {entry.outcome}" if entry.outcome else ""
        return Content.assemble(("▸ ", "$text-accent"), (entry.task, LOUD), (end, MUTED))
    number = f"{entry.number:>2} "
    target = entry.target.rpartition("::")[2] or entry.form or "whole task"
    if entry.label is None or entry.decision is None:
        if current is None:
            return Content.assemble(("– ", MUTED), (number, MUTED), target, (" not ended", MUTED))
        told = (f" {current.value}", MUTED)
        return Content.assemble(("◌ ", ASK), (number, MUTED), target, told)
    ranked = entry.rank_after is not None
    moved = f" {_rank(entry.rank_before)}→{_rank(entry.rank_after)}" if ranked else ""
    if entry.decision is Decision.COMMITTED:
        return Content.assemble(("✓ ", GOOD), (number, MUTED), target, (f" committed{moved}", GOOD))
    by_rule = entry.decision is Decision.RULE_REJECTED
    why = entry.label.value if by_rule else entry.decision.value
    harmful = by_rule and entry.label in _HARMFUL
    return Content.assemble(
        ("✗ ", BAD),
        (number, MUTED),
        target,
        (f" {why}", BAD if harmful else MUTED),
        (moved, MUTED),
    )


_HARMFUL = (Label.PROTECTED_REGRESSION, Label.INCOMPARABLE, Label.OPEN)


def _rank(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def attempt_head(attempt: Attempt) -> Content:
    """What an attempt is and came to, above its answer, diff and evidence."""
    about = attempt.target or "the whole task"
    parts: list[list[Part]] = [[(f"Attempt {attempt.number}", LOUD)], [(about, "")]]
    if attempt.form:
        parts.append([(attempt.form, MUTED)])
    if attempt.label is not None and attempt.decision is not None:
        tone = GOOD if attempt.decision is Decision.COMMITTED else BAD
        parts.append([(attempt.label.value, ""), (f" ({attempt.decision.value})", tone)])
        moved = f"rank {_rank(attempt.rank_before)} → {_rank(attempt.rank_after)}"
        parts.append([(moved, "")])
    elif attempt.run_index:
        parts.append([(f"repeat {attempt.run_index} to confirm", MUTED)])
    head = joined(parts)
    return Content.assemble(head, "\n", attempt.verdict) if attempt.verdict else head


def check_head(obligation: str, line: FailingLine) -> Content:
    """The full name of a failing check."""
    return Content.assemble(
        ("✗ ", BAD), (line.name, LOUD), (f"  {obligation}, value {line.value:,}", MUTED)
    )


def diff(text: str) -> Content:
    """A unified diff, coloured; each line keeps its sign, so it reads without colour too."""
    parts: list[Part] = []
    for line in text.split("\n"):
        parts.append((f"{line}\n", _diff_style(line)))
    return Content.assemble(*parts)


def _diff_style(line: str) -> str:
    if line.startswith(("+++ ", "--- ", "diff ")):
        return LOUD
    if line.startswith("@@"):
        return "$text-accent"
    if line.startswith("+"):
        return GOOD
    if line.startswith("-"):
        return BAD
    return MUTED


def evidence(attempt: Attempt) -> Content:
    """What got better and worse, then what the next attempt was told."""
    parts: list[Part] = []
    for title, found, style in (
        ("Better", attempt.improved, GOOD),
        ("Worse", attempt.worsened, BAD),
    ):
        if found.count:
            parts.append((f"{title} ({found.count:,})\n", f"{LOUD} {style}"))
            parts += [(f"  {name}\n", "") for name in found.shown]
            if found.count > len(found.shown):
                parts.append((f"  and {found.count - len(found.shown):,} more\n", MUTED))
            parts.append(("\n", ""))
    if attempt.evidence:
        parts += [("Evidence for the next attempt\n", LOUD), (f"{attempt.evidence}\n\n", "")]
    costs = [f"program {attempt.program_time * 1000:,.0f} ms"]
    if attempt.usage is not None:
        usage = attempt.usage
        costs.append(
            f"prompt {usage.prompt_tokens:,} tokens, {usage.reused_tokens:,} reused, "
            f"answer {usage.completion_tokens:,}"
        )
    if attempt.bundle:
        costs.append(f"bundle {attempt.bundle[:12]}")
    if attempt.label is not None:
        parts.append((" · ".join(costs), MUTED))
    return Content.assemble(*parts)
