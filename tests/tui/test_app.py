"""The app driven by keys, on a played session."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tui.fake_session import FakeSession, Planned, a_diff, untrusted
from tests.tui.stubs import YES, never
from veriloop_tui.core.event import Event, Outcome, RunEnded
from veriloop_tui.core.ports import Approval, Approver, Cancel
from veriloop_tui.errors import EngineCrashed
from veriloop_tui.tui.app import VeriloopApp
from veriloop_tui.tui.screens import ReasonScreen, TextScreen
from veriloop_tui.tui.workbench import REACTION

Driven = Pilot[RunEnded | None]
ONE = (Planned("clamp", body="return max(low, min(n, high))"),)
TASK = tuple("fix")


def drive(
    app: VeriloopApp,
    flow: Callable[[Driven], Coroutine[Any, Any, None]],
    size: tuple[int, int] = (100, 30),
) -> None:
    """Run `flow` on the app."""

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await flow(pilot)

    asyncio.run(run())


async def until(pilot: Driven, wanted: Callable[[], bool]) -> None:
    """Wait until something holds and has been painted."""
    for _ in range(400):
        if wanted():
            await pilot.pause(0.12)
            return
        await pilot.pause(0.02)
    raise AssertionError(f"it never came; the screen shows\n{screen(pilot.app)}")


def screen(app: Any) -> str:
    """The text on the screen, line by line."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


async def opened(pilot: Driven, app: VeriloopApp) -> None:
    """Wait for the first measurement."""
    await until(pilot, lambda: app.bench.view.incumbent is not None and app.bench.job is None)


async def asked(pilot: Driven, app: VeriloopApp) -> None:
    """Start a run and wait for its first question."""
    await opened(pilot, app)
    await pilot.press(*TASK, "enter")
    await until(pilot, lambda: question_seen(app))


def question_seen(app: VeriloopApp) -> bool:
    """Whether a question has been there long enough to be answered."""
    return app.bench.view.question is not None and app.bench.moment().waited >= REACTION


async def ended(pilot: Driven, app: VeriloopApp) -> None:
    """Wait until the run is over."""
    await until(pilot, lambda: app.bench.last is not None and app.bench.job is None)


def test_the_screen_shows_rank_failing_checks_and_what_they_say() -> None:
    app = VeriloopApp(FakeSession())

    async def flow(pilot: Driven) -> None:
        await opened(pilot, app)
        shown = screen(app)
        assert "Checks · rank 6" in shown
        assert "✗ tests  rank 6  8/14" in shown
        assert "✓ types  rank 0  1/1" in shown
        assert "smollm2 · sandbox best · stage overlay" in shown
        assert "ready" in shown
        await pilot.press("escape", "shift+tab", "down", "down")
        await until(pilot, lambda: "assert numbers.clamp(7) == 3" in screen(app))

    drive(app, flow)


def test_a_typed_task_runs_and_streams_the_proposal() -> None:
    gate = threading.Event()
    session = FakeSession(plan=ONE, gate=gate)
    app = VeriloopApp(session)

    async def flow(pilot: Driven) -> None:
        await opened(pilot, app)
        await pilot.press(*TASK, "enter")
        await until(pilot, lambda: app.bench.view.phase.value == "verifying")
        assert session.tasks == ["fix"]
        shown = screen(app)
        assert "verifying attempt 1" in shown
        assert "SmolLM2 135M Instruct 98 MB 5.83 BPW Q4_1" in shown
        assert "ctx 473/2,048 reused 0 · attempts 1/40" in shown
        assert "+    return max(low, min(n, high))" in shown
        await pilot.press("1")
        await until(pilot, lambda: "Here is the function repaired" in screen(app))
        gate.set()
        await until(pilot, lambda: app.bench.view.question is not None)

    drive(app, flow)


def test_the_answer_is_seen_while_it_still_streams() -> None:
    app = VeriloopApp(FakeSession(plan=ONE, delay=0.1))

    async def flow(pilot: Driven) -> None:
        await opened(pilot, app)
        await pilot.press(*TASK, "enter")
        await until(pilot, lambda: "Here is the" in screen(app))
        assert app.bench.view.phase.value == "proposing"
        await pilot.press("s")
        await ended(pilot, app)

    drive(app, flow)


def test_an_approved_candidate_is_committed() -> None:
    session = FakeSession(plan=ONE)
    app = VeriloopApp(session)

    async def flow(pilot: Driven) -> None:
        await asked(pilot, app)
        assert "Commit attempt 1?" in screen(app)
        assert "1 check (test_clamp) improved, none got worse." in screen(app)
        await pilot.press("a")
        await ended(pilot, app)
        assert session.approvals == [Approval(True)]
        assert "Checks · rank 6 → 5" in screen(app)
        assert "clamp committed 6→5" in screen(app)
        assert "1 commit in 1 attempt, rank 6 → 5." in screen(app)

    drive(app, flow)


def test_every_warning_is_on_the_screen_before_an_approval() -> None:
    warnings = tuple(f"suspicion number {number}" for number in range(9))
    app = VeriloopApp(FakeSession(plan=(Planned("clamp", warnings=warnings),)))

    async def flow(pilot: Driven) -> None:
        await asked(pilot, app)
        shown = screen(app)
        assert all(warning in shown for warning in warnings[:6])
        assert "and 3 more warnings" in shown
        assert "+    return n % 2" in shown
        await pilot.press("s")
        await ended(pilot, app)

    drive(app, flow, (80, 24))


def test_a_rejection_carries_its_reason() -> None:
    session = FakeSession(plan=ONE)
    app = VeriloopApp(session)

    async def flow(pilot: Driven) -> None:
        await asked(pilot, app)
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, ReasonScreen))
        await pilot.press(*"too clever", "enter")
        await ended(pilot, app)
        assert session.approvals == [Approval(False, "too clever")]
        assert "clamp user-rejected" in screen(app)
        assert "you rejected it: too clever." in screen(app)

    drive(app, flow)


def test_going_back_from_the_reason_leaves_the_question_open() -> None:
    session = FakeSession(plan=ONE)
    app = VeriloopApp(session)

    async def flow(pilot: Driven) -> None:
        await asked(pilot, app)
        await pilot.press("r", "x", "escape")
        await until(pilot, lambda: not isinstance(app.screen, ReasonScreen))
        assert app.bench.view.question is not None
        assert session.approvals == []
        await pilot.press("a")
        await ended(pilot, app)
        assert session.approvals == [Approval(True)]

    drive(app, flow)


def test_a_second_press_of_approve_does_not_answer_the_next_question() -> None:
    session = FakeSession(plan=(Planned("clamp"), Planned("total")))
    now = 0.0
    app = VeriloopApp(session, clock=lambda: now)

    async def flow(pilot: Driven) -> None:
        nonlocal now
        await opened(pilot, app)
        await pilot.press(*TASK, "enter")
        await until(pilot, lambda: app.bench.view.question is not None)
        now = 10.0
        await pilot.press("a", "a", "a", "a")
        await until(pilot, lambda: app.bench.view.question is not None)
        assert app.bench.view.question is not None
        assert app.bench.view.question.attempt == 2
        await pilot.press("a", "a")
        assert session.approvals == [Approval(True)]
        await pilot.press("s")
        await ended(pilot, app)

    drive(app, flow)


def test_stop_ends_a_run_in_the_middle_of_a_verification() -> None:
    app = VeriloopApp(FakeSession(gate=threading.Event()))

    async def flow(pilot: Driven) -> None:
        await opened(pilot, app)
        await pilot.press(*TASK, "enter")
        await until(pilot, lambda: app.bench.view.phase.value == "verifying")
        await pilot.press("s")
        await ended(pilot, app)
        assert app.bench.last is not None
        assert app.bench.last.outcome is Outcome.STOPPED
        assert "Stopped." in screen(app)
        assert "1 is_even not ended" in screen(app)
        assert "ready" in screen(app)

    drive(app, flow)


@pytest.mark.parametrize("reason_open", [False, True])
def test_stop_ends_a_run_that_waits_for_an_answer(reason_open: bool) -> None:
    session = FakeSession(plan=ONE)
    app = VeriloopApp(session)

    async def flow(pilot: Driven) -> None:
        await asked(pilot, app)
        if reason_open:
            await pilot.press("r")
            await until(pilot, lambda: isinstance(app.screen, ReasonScreen))
        await pilot.press("ctrl+c")
        await ended(pilot, app)
        assert not session.approvals[0].approved
        assert not isinstance(app.screen, ReasonScreen)
        assert "Commit attempt" not in screen(app)

    drive(app, flow)


def test_quitting_stops_the_run_first_and_returns_its_end() -> None:
    app = VeriloopApp(FakeSession(gate=threading.Event()))

    async def flow(pilot: Driven) -> None:
        await opened(pilot, app)
        await pilot.press(*TASK, "enter")
        await until(pilot, lambda: app.bench.view.phase.value == "verifying")
        await pilot.press("q")
        for _ in range(200):
            if app.return_value is not None:
                break
            await pilot.pause(0.02)

    drive(app, flow)
    assert app.return_value is not None
    assert app.return_value.outcome is Outcome.STOPPED


def test_an_error_of_a_run_is_a_sentence_on_a_living_screen() -> None:
    session = FakeSession(error=EngineCrashed("it was killed by signal 9"))
    app = VeriloopApp(session)

    async def flow(pilot: Driven) -> None:
        await opened(pilot, app)
        await pilot.press(*TASK, "enter")
        await until(pilot, lambda: "killed by signal 9" in screen(app))
        assert "The engine stopped" in screen(app)
        assert "ready" in screen(app)
        session.error, session.plan = None, ONE
        await pilot.press("t", *TASK, "enter")
        await until(pilot, lambda: app.bench.view.question is not None)

    drive(app, flow)


def test_a_fault_of_the_program_in_a_thread_is_told_too() -> None:
    app = VeriloopApp(FakeSession(error=ZeroDivisionError("[/red] odd")))

    async def flow(pilot: Driven) -> None:
        await opened(pilot, app)
        await pilot.press(*TASK, "enter")
        await until(pilot, lambda: "ZeroDivisionError: [/red] odd" in screen(app))

    drive(app, flow)


def test_markup_and_escapes_of_hostile_tests_and_answers_are_only_text() -> None:
    hostile = "\x1b]0;title\x07\x1b[31m[bold red]not markup[/] [link=x]\x9b2J\u202eevil"
    plan = (Planned("[@click=app.quit]f", body=hostile, diff=a_diff("f", hostile)),)
    app = VeriloopApp(FakeSession(plan=plan, text=lambda _: hostile))

    async def flow(pilot: Driven) -> None:
        await asked(pilot, app)
        assert "[bold red]not markup[/] [link=x]" in screen(app)
        for keys in (["1"], ["3"], ["shift+tab", "down"], ["n"]):
            await pilot.press(*keys)
            await pilot.pause(0.15)
            assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(screen(app))
        await pilot.press("escape", "s")
        await ended(pilot, app)

    drive(app, flow, (160, 40))


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_what_must_always_be_visible_is_so_after_a_resize(size: tuple[int, int]) -> None:
    app = VeriloopApp(FakeSession(plan=ONE))

    async def flow(pilot: Driven) -> None:
        await asked(pilot, app)
        await pilot.resize_terminal(*size)
        await pilot.pause(0.2)
        shown = screen(app)
        assert len(shown.splitlines()) == size[1]
        for wanted in (
            "SmolLM2 135M Instruct 98 MB 5.83 BPW Q4_1 · sandbox best · stage overlay",
            "ctx 473/2,048 reused 0 · attempts 1/40 · time 0:0",
            "attempt 1 waits for you",
            "Commit attempt 1?",
            "a Approve",
            "s Stop",
            "q Quit",
            "Checks · rank 6",
            "Attempts",
            "+    return max(low, min(n, high))",
        ):
            assert wanted in shown, wanted
        await pilot.press("s")
        await ended(pilot, app)

    drive(app, flow)


@pytest.mark.parametrize(
    ("path", "command"), [("veriloop.toml", "veriloop trust"), ("", "veriloop init")]
)
def test_without_a_trusted_contract_nothing_runs_and_the_command_is_named(
    path: str, command: str
) -> None:
    session = FakeSession(known=untrusted(path))
    app = VeriloopApp(session)

    async def flow(pilot: Driven) -> None:
        await until(pilot, lambda: command in screen(app))
        await pilot.press("m")
        await pilot.pause(0.3)
        assert session.verifications == 0
        await pilot.press(*TASK[:1], "enter")
        await pilot.pause(0.2)
        assert session.tasks == []
        session.known = FakeSession().known
        await pilot.press("m")
        await opened(pilot, app)
        assert "Checks · rank 6" in screen(app)
        await pilot.press(*TASK, "enter")
        await until(pilot, lambda: session.tasks == ["fix"])
        await pilot.press("s")
        await ended(pilot, app)

    drive(app, flow)


def test_changed_files_are_measured_again() -> None:
    session = FakeSession()
    app = VeriloopApp(session)

    async def flow(pilot: Driven) -> None:
        await opened(pilot, app)
        session.failing = session.failing[:2]
        session.changed()
        await until(pilot, lambda: session.verifications == 2 and app.bench.job is None)
        assert "✗ tests  rank 2" in screen(app)

    drive(app, flow)


def test_files_that_cannot_be_watched_are_announced() -> None:
    class Unwatched(FakeSession):
        def watch(self, changed: Callable[[], None]) -> AbstractContextManager[None]:
            raise OSError("no watches left")

    app = VeriloopApp(Unwatched())

    async def flow(pilot: Driven) -> None:
        await until(pilot, lambda: any("not watched" in news.text for news in app.bench.view.news))

    drive(app, flow)


def test_auto_commits_without_a_question_and_the_header_says_so() -> None:
    session = FakeSession()
    app = VeriloopApp(session, "mend it", start=True, auto=True)

    async def flow(pilot: Driven) -> None:
        await ended(pilot, app)
        assert session.tasks == ["mend it"]
        assert session.approvals == [Approval(True), Approval(True)]
        assert "auto" in screen(app).splitlines()[0]
        assert "rank 6 → 4." in screen(app)
        assert app.is_running

    drive(app, flow)


def test_with_exit_when_done_the_app_ends_with_its_run() -> None:
    app = VeriloopApp(FakeSession(), "mend it", start=True, auto=True, exit_when_done=True)
    result = asyncio.run(_headless(app))
    assert result is not None
    assert result.commits == 2


def test_with_exit_when_done_an_error_ends_the_app_and_is_kept_for_the_caller() -> None:
    error = EngineCrashed("it was killed")
    session = FakeSession(error=error)
    app = VeriloopApp(session, "mend it", start=True, auto=True, exit_when_done=True)
    assert asyncio.run(_headless(app)) is None
    assert app.bench.failure is error


async def _headless(app: VeriloopApp) -> RunEnded | None:
    return await app.run_async(headless=True)


def test_a_task_typed_during_a_measurement_stops_it_and_runs_next() -> None:
    @dataclass
    class Slow(FakeSession):
        gave_way: bool = False

        def verify(self, cancel: Cancel) -> Iterator[Event]:
            pause = threading.Event()
            while not cancel.is_set():
                pause.wait(0.01)
            self.gave_way = True
            yield from ()

    session = Slow(plan=ONE)
    app = VeriloopApp(session)

    async def flow(pilot: Driven) -> None:
        await until(pilot, lambda: app.bench.facts is not None)
        assert "measuring the workspace" in screen(app)
        await pilot.press(*TASK, "enter")
        await until(pilot, lambda: app.bench.view.question is not None)
        assert session.gave_way
        await pilot.press("s")
        await ended(pilot, app)

    drive(app, flow)


def test_an_attempt_of_the_timeline_shows_its_answer_diff_and_evidence() -> None:
    app = VeriloopApp(FakeSession(), "mend it", start=True, auto=True)

    async def flow(pilot: Driven) -> None:
        await ended(pilot, app)
        await pilot.press("up", "up")
        await until(pilot, lambda: "Attempt 3" in screen(app))
        assert "incomparable (rule-rejected)" in screen(app)
        assert "but 1 check (test_sign)" in screen(app)
        assert "+    return 1" in screen(app)
        await pilot.press("1")
        await until(pilot, lambda: "Here is the function repaired" in screen(app))
        await pilot.press("3")
        await until(pilot, lambda: "Evidence for the next attempt" in screen(app))
        assert "tests:tests/test_numbers.py::test_sign" in screen(app)
        await pilot.press("f")
        await until(pilot, lambda: "Attempt 5" in screen(app))

    drive(app, flow, (160, 40))


def test_earlier_runs_are_in_the_timeline_when_the_app_opens() -> None:
    earlier = tuple(FakeSession().run("the old task", YES, never))
    app = VeriloopApp(FakeSession(history=earlier))

    async def flow(pilot: Driven) -> None:
        await opened(pilot, app)
        assert "the old task" in screen(app)
        assert "is_even committed 6→5" in screen(app)
        assert "Checks · rank 6" in screen(app)

    drive(app, flow)


def test_help_and_news_open_and_close_by_keys() -> None:
    app = VeriloopApp(FakeSession())

    async def flow(pilot: Driven) -> None:
        await opened(pilot, app)
        await pilot.press("escape", "question_mark")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        assert "no protected check got worse" in screen(app)
        await pilot.press("escape", "n")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        assert "The tests run in a copy of the workspace." in screen(app)
        await pilot.press("escape", "d")
        await until(pilot, lambda: not app.current_theme.dark)

    drive(app, flow)


def test_a_screen_with_thousands_of_pieces_a_second_still_answers_keys() -> None:
    class Flood(FakeSession):
        def _attempt(
            self, number: int, planned: Planned, approver: Approver, cancel: Cancel
        ) -> Iterator[Event]:
            first, *rest = super()._attempt(number, planned, YES, never)
            yield first
            flowing, pause = rest[0], threading.Event()
            while not cancel.is_set():
                pause.wait(0.0001)
                yield from (flowing, flowing)

    app = VeriloopApp(Flood(plan=ONE))

    async def flow(pilot: Driven) -> None:
        await opened(pilot, app)
        await pilot.press(*TASK, "enter")
        await until(pilot, lambda: "proposing" in screen(app))
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await pilot.press("escape", "s")
        await ended(pilot, app)

    drive(app, flow)
