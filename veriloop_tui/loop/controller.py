"""The controller: one run, from the first measurement to the last event.

It alone decides what may persist, by `core.transition`. Every event is recorded before it is
yielded, except the pieces of an answer; a commit's event is recorded in the transaction that
commits it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

from veriloop_tui.core.diff import unified_diff
from veriloop_tui.core.event import (
    ApprovalRequested,
    AttemptStarted,
    CandidateParsed,
    EpochStarted,
    Event,
    Notice,
    Outcome,
    ProposalDelta,
    ProposalFinished,
    RunEnded,
    RunStarted,
    VerificationStarted,
)
from veriloop_tui.core.evidence import Evidence
from veriloop_tui.core.excerpt import excerpt, one_line
from veriloop_tui.core.memory import ExplorationMemory, repeated
from veriloop_tui.core.ports import Cancel, InvalidAnswer, Proposal, ProposalContext
from veriloop_tui.core.snapshot import Candidate
from veriloop_tui.core.transition import Decision, Transition, invalid, unrankable
from veriloop_tui.errors import (
    BaselineNotRankable,
    Cancelled,
    ContractError,
    EngineError,
    InvalidEdit,
    StaleBase,
    VeriloopError,
)
from veriloop_tui.loop.account import Account
from veriloop_tui.loop.binding import bind, displacement
from veriloop_tui.loop.incumbent import Incumbent, Judged, judge, measure_incumbent
from veriloop_tui.loop.plan import Attempt, Parts, Plan, attempt_seed
from veriloop_tui.loop.suspicion import suspicions
from veriloop_tui.loop.telling import attempt_ended, attempt_started, incumbent_measured

CONTRACT = "veriloop.toml"
PAUSE = 1.0
# An answer that came within this time leaves no more room for an edit than another look would.
AT_ONCE = 0.05
REASON = 500


class Controller:
    """One run under one plan; `events` may be iterated once."""

    def __init__(self, plan: Plan, parts: Parts, cancel: Cancel) -> None:
        self._plan, self._parts = plan, parts
        self._account = Account(plan.budget, parts.clock, parts.stored_bytes, cancel)
        self._memory = ExplorationMemory()
        self._history: tuple[tuple[Evidence, str], ...] = ()
        self._measured: Incumbent | None = None
        self._carried: Candidate | None = None
        self._epoch = 1
        self._commits = 0
        self._rank_before: int | None = None

    def events(self) -> Iterator[Event]:
        """The run. Ends with `RunEnded`; errors other than the engine's are raised after it."""
        plan, parts = self._plan, self._parts
        try:
            yield self._record(
                RunStarted(
                    run=plan.run,
                    task=plan.task,
                    model=parts.model,
                    contract_hash=plan.contract.contract_hash,
                    sandbox_tier=parts.verifier.sandbox_tier,
                    staging_rung=parts.verifier.staging_rung,
                    budget=plan.budget,
                )
            )
            yield from self._measure()
            yield self._record((yield from self._attempts()))
        except EngineError as error:
            yield self._record(self._ended(Outcome.ENGINE_FAILED, str(error)))
        except BaselineNotRankable as error:
            yield self._record(self._ended(Outcome.NOT_RANKABLE, str(error)))
        except Cancelled:
            yield self._record(self._interrupted())
        except VeriloopError as error:
            # Not recorded: the ledger itself may be what failed.
            yield self._ended(Outcome.FAILED, str(error))
            raise

    def _attempts(self) -> Generator[Event, None, RunEnded]:
        while True:
            yield from self._follow_the_user()
            if self._incumbent.rank.total == 0:
                return self._nothing_left()
            if self._account.is_set():
                return self._interrupted()
            kind = self._account.exhausted()
            if kind is not None:
                return self._ended(Outcome.BUDGET_SPENT, kind)
            yield from self._attempt()

    def _nothing_left(self) -> RunEnded:
        if not self._commits:
            detail = "no check of this contract could improve"
            return self._ended(Outcome.NOTHING_TO_IMPROVE, detail)
        if self._incumbent.rank.flaky:
            return self._ended(Outcome.STALLED, "only quarantined checks are left")
        return self._ended(Outcome.COMPLETE, "rank zero under this contract")

    def _measure(self) -> Iterator[Event]:
        """Measure the workspace as the incumbent of this epoch, and bind it in a bundle."""
        plan, parts = self._plan, self._parts
        incumbent = measure_incumbent(plan.contract, parts.snapshots, parts.verifier, self._account)
        self._account.add(verifier_time=sum(record.duration for record in incumbent.records))
        self._measured = incumbent
        if self._rank_before is None:
            self._rank_before = incumbent.rank.total
        event = incumbent_measured(incumbent, plan.contract, self._epoch)
        bundle = bind(plan, parts, incumbent, self._account.spent(), self._memory, None)
        parts.ledger.commit(plan.run, bundle, event)
        yield event

    def _follow_the_user(self) -> Iterator[Event]:
        """Where the workspace moved, start an epoch; wait while it cannot be ranked."""
        snapshots = self._parts.snapshots
        paths = snapshots.drift(self._incumbent.snapshot)
        while paths:
            if CONTRACT in paths:
                # What is measured from here on would be bound to a contract that holds no more.
                problem = "was changed during the run, which therefore ended; start another"
                raise ContractError(CONTRACT, 0, "", problem)
            self._epoch += 1
            self._history = ()
            if self._carried is not None and set(self._carried.paths) & set(paths):
                self._carried = None
            reason = "the workspace was edited"
            yield self._record(EpochStarted(epoch=self._epoch, reason=reason, paths=paths))
            moved_to = snapshots.take()
            try:
                yield from self._measure()
            except BaselineNotRankable as error:
                text = f"Paused until the workspace changes: {error}"
                yield self._record(Notice(text=text))
                while not (paths := snapshots.drift(moved_to)):
                    if self._account.is_set():
                        raise Cancelled from None
                    self._parts.clock.sleep(PAUSE)
            else:
                paths = ()

    def _attempt(self) -> Iterator[Event]:
        clock = self._parts.clock
        self._account.add(attempts=1)
        number = self._account.spent().attempts
        attempt = Attempt(number, attempt_seed(self._plan.seed, number), clock.monotonic())
        result: Candidate | InvalidAnswer
        if self._carried is not None:
            result = replace(self._carried, base=self._incumbent.snapshot)
            self._carried = None
            yield self._record(
                AttemptStarted(attempt=number, form="re-applied", target="", seed=attempt.seed)
            )
        else:
            result = (yield from self._propose(attempt)).result
        refusal = self._refuse(attempt, result)
        if refusal is not None:
            transition, decision = refusal
            known = attempt.candidate is not None
            yield from self._end(attempt, transition, decision, repeated=known)
            return
        assert attempt.candidate is not None
        paths = attempt.candidate.paths
        yield self._record(CandidateParsed(attempt=number, paths=paths, diff=attempt.diff))
        try:
            judged = yield from self._judge(attempt, attempt.candidate)
        except StaleBase:
            moved = unrankable("the workspace changed while the candidate was verified")
            self._carried = attempt.candidate
            yield from self._end(attempt, moved, Decision.STALE)
        else:
            yield from self._decide(attempt, judged)

    def _propose(self, attempt: Attempt) -> Generator[Event, None, Proposal]:
        clock = self._parts.clock
        began = clock.monotonic()
        context = ProposalContext(
            task=self._plan.task,
            base=self._incumbent.snapshot,
            failing=self._incumbent.failing,
            memory=self._memory,
            history=tuple(evidence for evidence, _ in self._history),
            answers=tuple(answer for _, answer in self._history),
            attempt=attempt.number,
            seed=attempt.seed,
            max_tokens=self._account.answer_tokens(),
        )
        pieces = self._parts.proposer.propose(context, self._account)
        try:
            while True:
                piece = next(pieces)
                if isinstance(piece, str):
                    yield ProposalDelta(attempt=attempt.number, text=piece)
                else:
                    attempt.asked = piece
                    yield self._record(attempt_started(attempt, piece))
        except StopIteration as end:
            proposal: Proposal = end.value
        attempt.model_time = clock.monotonic() - began
        attempt.answer = proposal.text
        usage = proposal.usage
        self._account.add(tokens=usage.evaluated_tokens + usage.completion_tokens)
        if proposal.finish_reason == "cancelled":
            raise Cancelled
        yield self._record(
            ProposalFinished(
                attempt=attempt.number,
                text=proposal.text,
                finish_reason=proposal.finish_reason,
                usage=usage,
                timings=proposal.timings,
            )
        )
        return proposal

    def _refuse(
        self, attempt: Attempt, result: Candidate | InvalidAnswer
    ) -> tuple[Transition, Decision] | None:
        """What the answer is if it is not to be run; fills in the candidate where it is one."""
        if isinstance(result, InvalidAnswer):
            where = f"{result.path}: " if result.path else ""
            nearest = f"\nThe nearest text is:\n{result.nearest}" if result.nearest else ""
            return invalid(f"{where}{result.problem}{nearest}"), Decision.RULE_REJECTED
        touched = [path for path in result.paths if self._plan.protects(path)]
        if touched:
            reason = f"{one_line(touched[0], 200)}: this path is protected"
            return invalid(reason), Decision.RULE_REJECTED
        tests = sorted(self._incumbent.test_files.intersection(result.paths))
        if tests:
            reason = f"{one_line(tests[0], 200)}: tests of the contract are in this file"
            return invalid(reason), Decision.RULE_REJECTED
        try:
            tree = self._parts.snapshots.candidate(result)
        except InvalidEdit as error:
            return invalid(str(error)), Decision.RULE_REJECTED
        if tree == self._incumbent.snapshot:
            reason = "the change leaves every file as it is"
            return invalid(reason), Decision.RULE_REJECTED
        attempt.candidate, attempt.tree = result, tree
        attempt.diff = unified_diff(result.changes, self._read)
        known = self._memory.recall(self._incumbent.snapshot, tree)
        return None if known is None else (repeated(known), known.decision)

    def _judge(self, attempt: Attempt, candidate: Candidate) -> Generator[Event, None, Judged]:
        contract, verifier = self._plan.contract, self._parts.verifier
        steps = judge(contract, self._incumbent.rank, candidate.changes, verifier, self._account)
        for index, step in enumerate(steps):
            if isinstance(step, Judged):
                attempt.records = step.measured.records
                self._account.add(verifier_time=attempt.verifier_time)
                return step
            yield self._record(
                VerificationStarted(
                    attempt=attempt.number, run_index=index, obligations=tuple(sorted(step))
                )
            )
        raise AssertionError("a judgement ends with its verdict")

    def _decide(self, attempt: Attempt, judged: Judged) -> Iterator[Event]:
        parts, transition = self._parts, judged.transition
        if not transition.may_commit:
            yield from self._end(attempt, transition, Decision.RULE_REJECTED, judged)
            return
        assert attempt.candidate is not None
        warnings = suspicions(attempt.candidate.changes, self._read, attempt.diff)
        yield self._record(
            ApprovalRequested(
                attempt=attempt.number,
                improved=transition.improved,
                diff=attempt.diff,
                warnings=warnings,
            )
        )
        began = parts.clock.monotonic()
        approval = parts.approver.approve(transition, attempt.diff, warnings)
        attempt.user_time = parts.clock.monotonic() - began
        if self._account.cancelled:
            raise Cancelled
        if not approval.approved:
            refused = replace(transition, reason=excerpt(approval.reason, REASON))
            yield from self._end(attempt, refused, Decision.USER_REJECTED, judged)
        elif attempt.user_time > AT_ONCE and parts.snapshots.drift(self._incumbent.snapshot):
            yield from self._go_stale(attempt, judged)
        else:
            yield from self._commit(attempt, judged)

    def _commit(self, attempt: Attempt, judged: Judged) -> Iterator[Event]:
        plan, parts, transition = self._plan, self._parts, judged.transition
        candidate, tree, rank = attempt.candidate, attempt.tree, transition.rank
        assert candidate is not None
        assert tree is not None
        assert rank is not None
        after = Incumbent(tree, rank, judged.outcomes, attempt.records)
        bundle = bind(plan, parts, after, self._account.spent(), self._memory, attempt)
        ended = attempt_ended(
            attempt,
            self._incumbent.rank,
            transition,
            Decision.COMMITTED,
            judged,
            self._account.spent(),
            parts.clock.monotonic(),
            bundle=bundle.bundle_id,
        )
        try:
            parts.promoter.promote(
                candidate,
                tree,
                bundle.bundle_id,
                lambda: parts.ledger.commit(plan.run, bundle, ended),
            )
        except StaleBase:
            yield from self._go_stale(attempt, judged)
            return
        self._measured, self._history = after, ()
        self._commits += 1
        yield ended
        yield self._record(incumbent_measured(after, plan.contract, self._epoch))

    def _go_stale(self, attempt: Attempt, judged: Judged) -> Iterator[Event]:
        """The user's edit comes first; a candidate that was good is tried on the new base."""
        self._carried = attempt.candidate
        yield from self._end(attempt, judged.transition, Decision.STALE, judged)

    def _end(
        self,
        attempt: Attempt,
        transition: Transition,
        decision: Decision,
        judged: Judged | None = None,
        *,
        repeated: bool = False,
    ) -> Iterator[Event]:
        ended = attempt_ended(
            attempt,
            self._incumbent.rank,
            transition,
            decision,
            judged,
            self._account.spent(),
            self._parts.clock.monotonic(),
            repeated=repeated,
        )
        base = self._incumbent.snapshot
        self._history = (*self._history, (ended.evidence, attempt.answer))
        self._memory = self._memory.remember(displacement(attempt, base, transition, decision))
        yield self._record(ended)

    @property
    def _incumbent(self) -> Incumbent:
        assert self._measured is not None, "measured before the first attempt"
        return self._measured

    def _read(self, path: str) -> bytes | None:
        try:
            return self._parts.snapshots.read(self._incumbent.snapshot, path)
        except KeyError:
            return None

    def _record(self, event: Event) -> Event:
        self._parts.ledger.append(self._plan.run, event)
        return event

    def _interrupted(self) -> RunEnded:
        if self._account.cancelled:
            return self._ended(Outcome.STOPPED, "stopped by the user")
        return self._ended(Outcome.BUDGET_SPENT, "wall_time")

    def _ended(self, outcome: Outcome, detail: str) -> RunEnded:
        spent = self._account.spent()
        return RunEnded(
            run=self._plan.run,
            outcome=outcome,
            detail=detail,
            attempts=spent.attempts,
            commits=self._commits,
            rank_before=self._rank_before,
            rank_after=None if self._measured is None else self._measured.rank.total,
            bundle=self._parts.ledger.head(),
            spent=spent,
        )
