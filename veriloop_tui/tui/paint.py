"""Bars, news and questions as styled text. Hostile text goes in as plain text, never as markup."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from textual.content import Content

from veriloop_tui.core.excerpt import one_line
from veriloop_tui.core.ports import SessionFacts
from veriloop_tui.core.wording import checks
from veriloop_tui.tui.view import News, Phase, View

MUTED = "$foreground-muted"
GOOD = "$text-success"
BAD = "$text-error"
ASK = "$text-warning"
LOUD = "bold"
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

Part = tuple[str, str]


def joined(parts: list[list[Part]], between: str = " · ") -> Content:
    """Styled parts on one line."""
    flat: list[Part] = []
    for part in parts:
        if flat:
            flat.append((between, MUTED))
        flat += part
    return Content.assemble(*flat)


def clock(seconds: float) -> str:
    """`0:07`, `12:30`, `1:02:03`."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    if hours:
        return f"{hours}:{rest // 60:02}:{rest % 60:02}"
    return f"{rest // 60}:{rest % 60:02}"


def size(count: float) -> str:
    """Bytes as people read them: `40 kB`, `98 MB`, `20.6 GiB`."""
    if count < 1e6:
        return f"{count / 1e3:,.0f} kB"
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 1e6:,.0f} MB"


def phase(view: View, waited: float, stopping: bool, auto: bool, blocked: bool) -> Content:
    """The right end of the header: what is going on."""
    parts: list[list[Part]] = []
    if auto:
        parts.append([("auto", ASK)])
    if stopping:
        parts.append([("◌ stopping", ASK)])
        return joined(parts)
    number = f" attempt {view.current.number}" if view.current is not None else ""
    match view.phase:
        case Phase.IDLE if blocked:
            parts.append([("◇ needs you: see below", ASK)])
        case Phase.IDLE:
            parts.append([("● ready", GOOD)])
        case Phase.ASKING:
            parts.append([(f"◆{number} waits for you", f"{LOUD} {ASK}")])
        case _:
            spin = SPINNER[int(waited * 5) % len(SPINNER)]
            parts.append([(f"{spin} {view.phase.value}{number} {clock(waited)}", "$text-primary")])
    return joined(parts)


def facts_line(view: View, facts: SessionFacts | None) -> Content:
    """Model, sandbox tier and staging rung: always on the screen."""
    parts: list[list[Part]] = []
    model = view.model
    if model is not None:
        named = [(one_line(model.name, 24), "")]
        told = f" {size(model.file_size)} {model.bpw:.2f} BPW {one_line(model.quant, 12)}"
        parts.append([*named, (told.rstrip(), MUTED)])
    elif facts is not None:
        parts.append([(one_line(facts.model, 60) or "no model", "")])
    tier = view.sandbox_tier or (one_line(facts.sandbox_tier, 40) if facts else "")
    rung = view.staging_rung or (one_line(facts.staging_rung, 40) if facts else "")
    if tier:
        parts.append([("sandbox ", MUTED), (tier, ASK if tier in ("none", "reduced") else "")])
    if facts is not None or rung:
        parts.append([("stage ", MUTED), (rung or "–", "")])
    return joined(parts)


def _context(view: View) -> list[Part]:
    usage, model = view.usage, view.model
    if usage is None:
        return [("ctx ", MUTED), (f"–/{count(model.n_ctx)}" if model else "–", "")]
    used = usage.prompt_tokens + usage.completion_tokens
    of = f"/{count(model.n_ctx)}" if model else ""
    return [
        ("ctx ", MUTED),
        (count(used), ""),
        (of, MUTED),
        (" reused ", MUTED),
        (count(usage.reused_tokens), ""),
    ]


def _speed(view: View) -> list[Part]:
    if view.usage is None or view.timings is None or view.timings.predicted_ms <= 0:
        return []
    speed = view.usage.completion_tokens * 1000 / view.timings.predicted_ms
    return [(f"{speed:,.0f} tok/s", MUTED)]


def budget_line(view: View, elapsed: float) -> Content:
    """Context and reused tokens, then what is used of each declared budget.

    `elapsed` is the run's time so far, in seconds. The end is what a narrow screen cuts off.
    """
    limits, spent = view.budget, view.spent
    if limits is None:
        return joined([_context(view), [("no run yet, nothing spent", MUTED)]])
    running = view.current.number if view.current is not None else 0
    done = max(spent.attempts, running)
    rows = [
        _context(view),
        _budget("attempts", done, limits.attempts, count),
        _budget("time", elapsed, limits.wall_time, clock),
        _budget("tokens", spent.tokens, limits.tokens, count),
        _budget("in checks", spent.verifier_time, limits.verifier_time, clock),
    ]
    if spent.store_bytes:
        rows.append(_budget("store", spent.store_bytes, limits.store_bytes, size))
    return joined([row for row in (*rows, _speed(view)) if row])


def count(number: float) -> str:
    """`9,203`, `12.3k`, `131k`, `1.2M`."""
    if number < 10_000:
        return f"{number:,.0f}"
    if number < 1_000_000:
        return f"{number / 1000:,.1f}k" if number < 100_000 else f"{number / 1000:,.0f}k"
    return f"{number / 1e6:,.1f}M"


def _budget(
    name: str, used: float, limit: float | None, shown: Callable[[float], str]
) -> list[Part]:
    if limit is None:
        return [(f"{name} ", MUTED), (shown(used), "")]
    near = ASK if used >= limit * 0.9 else ""
    return [(f"{name} ", MUTED), (shown(used), near), (f"/{shown(limit)}", MUTED)]


def news_line(news: News) -> Content:
    """The last sentence for the user, with a sign so that it reads without colour."""
    match news.tone:
        case "good":
            return Content.assemble(("✓ ", GOOD), news.text)
        case "bad":
            return Content.assemble(("✗ ", BAD), news.text)
        case "note":
            return Content.assemble(("· ", MUTED), news.text)
        case "error":
            return Content.assemble(("! ", f"{LOUD} {BAD}"), (news.text, BAD))
        case _:
            assert_never(news.tone)


def question(view: View) -> Content:
    """What is asked before a commit, with every warning."""
    asked = view.question
    if asked is None:
        return Content("")
    parts: list[Part] = [
        (f"Commit attempt {asked.attempt}?   ", LOUD),
        ("a", f"{LOUD} {GOOD}"),
        (" approve   ", ""),
        ("r", f"{LOUD} {BAD}"),
        (" reject, with a reason\n", ""),
        (f"{checks(asked.improved)} improved, none got worse.", ""),
    ]
    cut = ("The diff is too long to be shown whole: read the files before you approve.",)
    for warning in (*asked.warnings, *(cut if asked.cut else ())):
        parts.append((f"\n! {warning}", ASK))
    return Content.assemble(*parts)


def no_contract(facts: SessionFacts) -> Content:
    """Which command the user has to run before anything can be measured."""
    if not facts.contract_path:
        return Content.assemble(
            ("This workspace has no contract yet.\n\n", LOUD),
            "A contract names the commands that decide what may persist. Run\n\n",
            ("  veriloop init\n\n", f"{LOUD} {ASK}"),
            "in this folder, then press ",
            ("m", LOUD),
            ".",
        )
    return Content.assemble(
        (f"{one_line(facts.contract_path, 200)} is not trusted, or it cannot be read.\n\n", LOUD),
        "None of its commands runs before you have trusted this version of it. "
        "This shows them and asks, or names the line at fault:\n\n",
        ("  veriloop trust\n\n", f"{LOUD} {ASK}"),
        "then press ",
        ("m", LOUD),
        ".",
    )
