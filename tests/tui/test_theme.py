"""The theme that the settings name."""

from __future__ import annotations

import pytest

from tests.tui.fake_session import FakeSession
from veriloop_tui.errors import SettingsError
from veriloop_tui.tui import run_app


def test_a_theme_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(SettingsError, match="textual-dark"):
        run_app(FakeSession(), theme="no such theme")
