"""Events as plain lines, for a run without the terminal app."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import assert_never

from veriloop_tui.core import wording
from veriloop_tui.core.bundle import CertifiedBundle
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
    Outcome,
    ProposalDelta,
    ProposalFinished,
    RolledBack,
    RunEnded,
    RunStarted,
    VerificationStarted,
)
from veriloop_tui.core.excerpt import excerpt, one_line, sanitise
from veriloop_tui.core.transition import Decision

SHOWN_CHECKS = 8
EXCERPT = 600

EXIT_CODES = {
    Outcome.COMPLETE: 0,
    Outcome.STALLED: 1,
    Outcome.BUDGET_SPENT: 1,
    Outcome.FAILED: 1,
    Outcome.NOT_RANKABLE: 3,
    Outcome.ENGINE_FAILED: 4,
    Outcome.NOTHING_TO_IMPROVE: 5,
    Outcome.STOPPED: 130,
}


def lines(event: Event) -> Iterator[str]:
    """What to print for an event; nothing for the pieces of an answer."""
    match event:
        case RunStarted():
            if event.model is not None:
                yield f"model      {_model(event.model)}"
            yield f"sandbox    {event.sandbox_tier}, staging {event.staging_rung}"
        case IncumbentMeasured():
            yield f"rank       {event.total}"
            for status in event.obligations:
                yield from obligation_lines(status)
        case EpochStarted():
            paths = one_line(", ".join(event.paths[:SHOWN_CHECKS]), 300)
            yield f"epoch {event.epoch}    {event.reason}: {paths}"
        case AttemptStarted():
            about = f" on {one_line(event.target, 200)}" if event.target else ""
            yield f"attempt {event.attempt:<3}asked for a {event.form} edit{about}"
        case ProposalDelta():
            return
        case ProposalFinished():
            usage = event.usage
            yield (
                f"           {usage.completion_tokens} tokens written, "
                f"{usage.evaluated_tokens} evaluated, {usage.reused_tokens} reused"
            )
        case CandidateParsed():
            yield f"           edits {one_line(', '.join(event.paths), 300)}"
        case VerificationStarted():
            again = "again " if event.run_index else ""
            yield f"           running {again}{one_line(', '.join(event.obligations), 300)}"
        case ApprovalRequested():
            for warning in event.warnings:
                yield f"warning    {one_line(warning, 300)}"
        case AttemptEnded():
            yield f"           {event.label.value}: {wording.verdict(event)}"
            if event.decision is Decision.COMMITTED:
                yield f"           rank {event.rank_before} -> {event.rank_after}"
        case RolledBack():
            paths = one_line(", ".join(event.paths), 300)
            yield f"rolled back to {event.target[:12]}: {paths}"
            yield f"undo with `veriloop rollback {event.previous[:12]}`"
        case Notice():
            yield f"notice     {sanitise(event.text)}"
        case RunEnded():
            yield f"end        {event.outcome.value}: {wording.outcome(event)}"
        case _:
            assert_never(event)


def _model(model: ModelFacts) -> str:
    """Size and bits per weight first, the name second."""
    return (
        f"{model.file_size / 2**30:.2f} GiB, {model.bpw:.2f} bits per weight, "
        f"{one_line(model.name, 80)} {one_line(model.quant, 20)}, context {model.n_ctx}"
    )


def obligation_lines(status: ObligationStatus) -> Iterator[str]:
    """An obligation's rank, then its first failing checks."""
    mark = "ok  " if status.total == 0 else "fail"
    held = f", {len(status.quarantined)} quarantined" if status.quarantined else ""
    name = one_line(status.name, 60)
    yield f"  {mark} {name}: rank {status.total} over {status.checks} checks{held}"
    for failing in status.failing[:SHOWN_CHECKS]:
        yield f"       {one_line(failing.check.name, 200)}"
    rest = len(status.failing) - SHOWN_CHECKS
    if rest > 0:
        yield f"       and {rest} more"


def failing_excerpts(status: ObligationStatus) -> Iterator[str]:
    """The failure texts of an obligation, bounded."""
    for failing in status.failing[:SHOWN_CHECKS]:
        if failing.excerpt:
            yield f"--- {one_line(failing.check.name, 200)}"
            yield excerpt(failing.excerpt, EXCERPT)


def history_line(time: float, bundle: str, event: Event) -> str:
    """One line of the log; `time` in seconds since the epoch, shown in UTC."""
    when = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")
    match event:
        case RunStarted():
            text = f"run: {one_line(event.task, 120)}"
        case AttemptEnded():
            text = f"attempt {event.attempt}: {event.label.value}: {wording.verdict(event)}"
        case _:
            text = next(lines(event), event.type)
    return f"{when}  {bundle[:12] or '-':12}  {' '.join(text.split())}"


def bundle_lines(bundle: CertifiedBundle) -> Iterator[str]:
    """A bundle for people: its rank, what ran on it, what it is bound to."""
    binding, state = bundle.binding, bundle.state
    yield f"bundle     {bundle.bundle_id}"
    yield f"snapshot   {bundle.artifact}"
    yield f"origin     {binding.origin.value}, parent {binding.parent[:12] or 'none'}"
    if bundle.verification:
        held = len(state.rank.flaky)
        checks = len(state.rank.entries)
        yield f"rank       {state.rank.total} over {checks} checks, {held} quarantined"
        for check in state.rank.failing[:SHOWN_CHECKS]:
            yield f"           {one_line(str(check), 200)}"
    else:
        yield "rank       not measured: no command ran on these bytes"
    for record in bundle.verification:
        yield (
            f"ran        {one_line(record.obligation, 60)}: exit {record.exit_code} "
            f"in {record.duration:.2f} s, {len(record.outcomes)} checks"
        )
    if binding.model is not None:
        yield f"model      {_model(binding.model)}"
        yield f"           file {binding.model.file_digest[:16]}, seed {binding.seed}"
    yield f"contract   {binding.contract_hash[:16]}, sandbox {binding.sandbox_tier or 'none ran'}"
    yield f"program    {binding.program_version} on {one_line(binding.platform, 80)}"
    if binding.task:
        yield f"task       {one_line(binding.task, 300)}"
