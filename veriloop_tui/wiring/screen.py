"""The terminal app on an open workspace."""

from __future__ import annotations

from contextlib import closing

from veriloop_tui.core.event import RunEnded
from veriloop_tui.tui.app import run_app
from veriloop_tui.wiring.session import WorkspaceSession
from veriloop_tui.wiring.workspace import Location, opened


def show(location: Location) -> RunEnded | None:
    """Open the app; the last run's end, if there was one."""
    with opened(location) as workspace, closing(WorkspaceSession(workspace)) as session:
        return run_app(session, theme=location.settings.theme)


def show_run(
    location: Location, task: str, seed: int | None, notices: tuple[str, ...]
) -> RunEnded | None:
    """Open the app on a run of `task` that commits every verified candidate."""
    with opened(location) as workspace, closing(WorkspaceSession(workspace, seed)) as session:
        workspace.notices += notices
        return run_app(session, task, start=True, auto=True, theme=location.settings.theme)
