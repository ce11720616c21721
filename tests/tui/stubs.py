"""Answers and cancel flags that never change."""

from __future__ import annotations

import threading

from veriloop_tui.tui.job import UserApprover

YES = UserApprover(auto=True)
never = threading.Event()
