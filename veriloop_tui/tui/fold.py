"""The fold from the events of a session to the view. Pure: no widgets, no threads, no time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from veriloop_tui.core.budget import Spent
from veriloop_tui.core.chat import ModelFacts
from veriloop_tui.core.event import (
    ApprovalRequested,
    AttemptEnded,
    AttemptStarted,
    CandidateParsed,
    EpochStarted,
    Event,
    IncumbentMeasured,
    Notice,
    ObligationStatus,
    ProposalDelta,
    ProposalFinished,
    RolledBack,
    RunEnded,
    RunStarted,
    VerificationStarted,
)
from veriloop_tui.core.excerpt import excerpt, one_line, visible
from veriloop_tui.core.transition import Decision
from veriloop_tui.core.wording import names, outcome, short, verdict
from veriloop_tui.tui.view import (
    Attempt,
    Entry,
    FailingLine,
    Incumbent,
    News,
    ObligationLine,
    Phase,
    Question,
    RunLine,
    Tone,
    View,
)

LINE = 300
ANSWER = 12_000
DIFF = 60_000
EXCERPT = 3_000
SENTENCE = 1_200
FAILING = 300
NEWS = 40
WARNINGS = 6
DETAILED = 200
TIMELINE = 2_000
TIMELINE_KEPT = 1_500


def tell(view: View, tone: Tone, text: str) -> View:
    """The view with one more sentence for the user."""
    return replace(view, news=(*view.news, News(tone, one_line(text, SENTENCE)))[-NEWS:])


def measuring(view: View) -> View:
    """The workspace is being measured outside a run."""
    return replace(view, phase=Phase.MEASURING)


def starting(view: View) -> View:
    """A run was asked for and has told nothing yet: the model may have to be loaded."""
    return replace(view, phase=Phase.STARTING)


def answered(view: View) -> View:
    """The user has answered the question."""
    return replace(view, phase=Phase.DECIDING, question=None)


def at_rest(view: View) -> View:
    """Nothing runs any more, whether it ended properly or not."""
    ended = view
    if view.current is not None:
        ended = _append(replace(view, current=None), view.current)
    return replace(ended, phase=Phase.IDLE, question=None)


def as_history(view: View) -> View:
    """What remains of earlier runs: their timeline, and nothing that claims to be the present."""
    past = at_rest(view)
    return View(timeline=past.timeline, dropped=past.dropped, next_serial=past.next_serial)


def fold(view: View, event: Event) -> View:
    """The view after `event`. Never raises, whatever the order of events."""
    match event:
        case RunStarted():
            return _run_started(at_rest(view), event)
        case IncumbentMeasured():
            return _incumbent_measured(view, event)
        case EpochStarted():
            moved = replace(view, phase=Phase.MEASURING, first_total=None)
            return tell(moved, "note", _epoch_sentence(event))
        case AttemptStarted():
            started = at_rest(view)
            attempt = Attempt(
                started.next_serial,
                event.attempt,
                one_line(event.form, LINE),
                one_line(event.target, LINE),
            )
            return replace(
                started,
                phase=Phase.PROPOSING,
                current=attempt,
                next_serial=started.next_serial + 1,
            )
        case ProposalDelta():
            attempt = _attempt(view, event.attempt)
            answer = (attempt.answer + visible(event.text[-ANSWER:]))[-ANSWER:]
            return _with(view, replace(attempt, answer=answer), Phase.PROPOSING)
        case ProposalFinished():
            attempt = replace(
                _attempt(view, event.attempt),
                answer=_bounded(event.text, ANSWER),
                usage=event.usage,
                timings=event.timings,
            )
            finished = _with(view, attempt, Phase.READING)
            return replace(finished, usage=event.usage, timings=event.timings)
        case CandidateParsed():
            attempt = replace(
                _attempt(view, event.attempt),
                diff=_bounded(event.diff, DIFF),
                paths=names(event.paths),
            )
            return _with(view, attempt, Phase.READING)
        case VerificationStarted():
            attempt = replace(_attempt(view, event.attempt), run_index=event.run_index)
            return _with(view, attempt, Phase.VERIFYING)
        case ApprovalRequested():
            return _approval_requested(view, event)
        case AttemptEnded():
            return _attempt_ended(view, event)
        case Notice():
            return tell(view, "note", event.text)
        case RolledBack():
            back = f"Rolled back to {event.target[:12]} ({names(event.paths)})"
            undo = f"`veriloop rollback {event.previous[:12]}` undoes it."
            return tell(replace(view, first_total=None), "note", f"{back}; {undo}")
        case RunEnded():
            return _run_ended(at_rest(view), event)
        case _:
            assert_never(event)


def _run_started(view: View, event: RunStarted) -> View:
    task = one_line(event.task, LINE)
    started = replace(
        view,
        phase=Phase.MEASURING,
        task=task,
        model=None if event.model is None else _model(event.model),
        sandbox_tier=one_line(event.sandbox_tier, LINE),
        staging_rung=one_line(event.staging_rung, LINE),
        budget=event.budget,
        spent=Spent(),
        usage=None,
        timings=None,
        first_total=None,
        next_serial=view.next_serial + 1,
    )
    return _append(started, RunLine(view.next_serial, task))


def _model(model: ModelFacts) -> ModelFacts:
    return replace(
        model,
        name=one_line(model.name, LINE),
        architecture=one_line(model.architecture, LINE),
        path=one_line(model.path, LINE),
        quant=one_line(model.quant, LINE),
    )


def _incumbent_measured(view: View, event: IncumbentMeasured) -> View:
    incumbent = Incumbent(
        event.total, tuple(_obligation(status) for status in event.obligations), event.epoch
    )
    first = event.total if view.first_total is None else view.first_total
    return replace(view, incumbent=incumbent, first_total=first)


def _obligation(status: ObligationStatus) -> ObligationLine:
    failing = tuple(
        FailingLine(
            one_line(failing.check.name, LINE), failing.value, excerpt(failing.excerpt, EXCERPT)
        )
        for failing in status.failing[:FAILING]
    )
    return ObligationLine(
        one_line(status.name, LINE),
        status.total,
        status.checks,
        failing,
        len(status.failing),
        names(check.name for check in status.quarantined),
        status.duration,
    )


def _epoch_sentence(event: EpochStarted) -> str:
    touched = names(event.paths)
    where = f" ({touched})" if touched.count else ""
    return f"A new epoch starts, ranks are measured afresh: {event.reason}{where}"


def _attempt(view: View, number: int) -> Attempt:
    """The running attempt, or a new one where events of another attempt come unannounced."""
    if view.current is not None and view.current.number == number:
        return view.current
    return Attempt(view.next_serial, number)


def _with(view: View, attempt: Attempt, phase: Phase) -> View:
    if view.current is not None and view.current.serial == attempt.serial:
        return replace(view, current=attempt, phase=phase)
    rest = at_rest(view)
    return replace(rest, current=attempt, phase=phase, next_serial=attempt.serial + 1)


def _approval_requested(view: View, event: ApprovalRequested) -> View:
    attempt = replace(_attempt(view, event.attempt), diff=_bounded(event.diff, DIFF))
    warnings = tuple(one_line(warning, LINE) for warning in event.warnings[:WARNINGS])
    if len(event.warnings) > WARNINGS:
        warnings = (*warnings, f"and {len(event.warnings) - WARNINGS:,} more warnings")
    question = Question(
        event.attempt,
        names(map(short, event.improved)),
        warnings,
        cut=len(event.diff) > DIFF or "\n[...]\n" in event.diff,
    )
    return replace(_with(view, attempt, Phase.ASKING), question=question)


def _attempt_ended(view: View, event: AttemptEnded) -> View:
    sentence = one_line(verdict(event), SENTENCE)
    attempt = replace(
        _attempt(view, event.attempt),
        label=event.label,
        decision=event.decision,
        verdict=sentence,
        improved=names(map(str, event.improved)),
        worsened=names(map(str, event.worsened)),
        rank_before=event.rank_before,
        rank_after=event.rank_after,
        evidence=excerpt(event.evidence.text, EXCERPT * 2),
        bundle=one_line(event.bundle, LINE),
        program_time=event.program_time,
    )
    ended = at_rest(_with(view, attempt, Phase.DECIDING))
    tone: Tone = "good" if event.decision is Decision.COMMITTED else "bad"
    told = tell(ended, tone, f"Attempt {event.attempt}. {sentence}")
    return replace(told, spent=event.spent, phase=Phase.DECIDING)


def _run_ended(view: View, event: RunEnded) -> View:
    timeline = list(view.timeline)
    for index in range(len(timeline) - 1, -1, -1):
        entry = timeline[index]
        if isinstance(entry, RunLine):
            timeline[index] = replace(entry, outcome=event.outcome.value)
            break
    tone: Tone = "good" if event.commits else "note"
    ended = replace(view, timeline=tuple(timeline), spent=event.spent, phase=Phase.IDLE)
    return tell(ended, tone, outcome(event))


def _append(view: View, entry: Entry) -> View:
    """One more entry; beyond the bounds old ones lose their details, then go."""
    timeline = (*view.timeline, entry)
    if len(timeline) > DETAILED:
        old = timeline[-DETAILED - 1]
        if isinstance(old, Attempt):
            bare = replace(old, answer="", diff="", evidence="", forgotten=True)
            timeline = (*timeline[: -DETAILED - 1], bare, *timeline[-DETAILED:])
    dropped = view.dropped
    if len(timeline) > TIMELINE:
        dropped += len(timeline) - TIMELINE_KEPT
        timeline = timeline[-TIMELINE_KEPT:]
    return replace(view, timeline=timeline, dropped=dropped)


def _bounded(text: str, limit: int) -> str:
    if len(text) > limit * 8:
        text = text[: limit * 4] + text[-limit * 4 :]
    return excerpt(visible(text), limit)


def coalesced(events: Iterable[Event]) -> list[Event]:
    """The same events, neighbouring pieces of one answer joined into one."""
    joined: list[Event] = []
    pieces: list[str] = []
    for event in events:
        last = joined[-1] if joined else None
        if (
            isinstance(event, ProposalDelta)
            and isinstance(last, ProposalDelta)
            and last.attempt == event.attempt
        ):
            pieces.append(event.text)
            continue
        _close(joined, pieces)
        pieces = [event.text] if isinstance(event, ProposalDelta) else []
        joined.append(event)
    _close(joined, pieces)
    return joined


def _close(joined: list[Event], pieces: list[str]) -> None:
    last = joined[-1] if joined else None
    if isinstance(last, ProposalDelta) and len(pieces) > 1:
        joined[-1] = replace(last, text="".join(pieces))
