"""What all commands share: how they print, and how they are interrupted."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from veriloop_tui.core.canonical import to_json

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def say(text: str = "") -> None:
    """A line on standard output."""
    typer.echo(text)


def say_json(value: object) -> None:
    """A JSON document on one line."""
    say(json.dumps(to_json(value)))


@contextmanager
def cancel_on_interrupt() -> Iterator[threading.Event]:
    """The first Ctrl-C (or SIGTERM) asks for a clean end, the second one insists."""
    cancel = threading.Event()

    def ask(number: int, _: object) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        cancel.set()

    before = {sign: signal.signal(sign, ask) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield cancel
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
