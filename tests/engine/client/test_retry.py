"""How long another server is waited for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.engine.client.retry import Patience


def test_lost_connections_are_borne_three_times() -> None:
    patience = Patience()
    assert [patience.after_loss() for _ in range(5)] == [0.5, 1.0, 2.0, None, None]


def test_a_busy_server_is_waited_for_a_minute_where_it_asks_for_nothing() -> None:
    patience = Patience()
    pauses = [patience.after_busy(None) for _ in range(8)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 15.0, 30.0, None, None]


def test_what_a_busy_server_asks_for_is_kept_to() -> None:
    assert Patience().after_busy(120.0) == 120.0
    assert Patience().after_busy(301.0) is None


@given(st.lists(st.none() | st.floats(0, 1e9), max_size=40))
def test_no_server_is_waited_for_without_end(asked: list[float | None]) -> None:
    patience = Patience()
    pauses = [pause for one in asked if (pause := patience.after_busy(one)) is not None]
    assert sum(pauses) <= 300.0
    assert len(pauses) <= 10
