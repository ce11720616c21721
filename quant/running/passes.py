"""A model in a process of its own, as the program sees it: orders go out, answers come back."""

from __future__ import annotations

import json
import queue
import threading
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from quant.running.order import Close, Load, Open, Order, Run, Speed, to_line
from quant.worker import Worker
from veriloop_tui.core.ports import Cancel
from veriloop_tui.errors import Cancelled, EngineStartFailed, PassFailed

_WORKER: Final = "quant.running.child"
_MAIN: Final = -1
_ENDED: Final = "ended"
MAX_STREAMS: Final = 16


@dataclass(frozen=True, slots=True)
class NotFinite:
    """A row of a step that holds NaN or an infinity: which sequence, which kept row of it."""

    sequence: int
    row: int


class _Stop:
    """Set when the program is to stop, or this pass alone."""

    def __init__(self, cancel: Cancel) -> None:
        self._cancel, self._own = cancel, threading.Event()

    def is_set(self) -> bool:
        return self._own.is_set() or self._cancel.is_set()

    def set(self) -> None:
        self._own.set()


class Pass:
    """A loaded model. Orders of different streams may be given from different threads."""

    def __init__(self, model: Path, gpu_layers: int, shared: int, cancel: Cancel) -> None:
        """Load it. Raises `EngineStartFailed`, `Cancelled`."""
        self._name, self._cancel = model.name, cancel
        self._stop = _Stop(cancel)
        load = Load(str(model), gpu_layers, shared)
        self._worker = Worker(_WORKER, json.dumps(asdict(load)), (shared,))
        self._answers: dict[int, queue.SimpleQueue[tuple[str, Any]]] = {
            stream: queue.SimpleQueue() for stream in range(_MAIN, MAX_STREAMS)
        }
        self._sending = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="pass-answers", daemon=True)
        self._reader.start()
        try:
            self._answer(_MAIN, "loaded")
        except PassFailed as problem:
            self.end()
            raise EngineStartFailed(f"{self._name} could not be loaded", problem.log) from None
        except BaseException:
            self.end()
            raise

    def open(self, order: Open) -> None:
        """Make the contexts of all streams in place of those before. Raises `PassFailed`."""
        self._send(order)
        self._answer(_MAIN, "opened")

    def close(self) -> None:
        """Free the contexts; the model stays loaded. Raises `PassFailed`, `Cancelled`."""
        self._send(Close())
        self._answer(_MAIN, "closed")

    def speeds(self, order: Speed) -> tuple[list[float], list[float]]:
        """Tokens per second of reading and of writing. Raises `PassFailed`, `Cancelled`."""
        self._send(order)
        read, written = self._answer(_MAIN, "speeds")
        return read, written

    def run(self, order: Run, permit: AbstractContextManager[object]) -> float | NotFinite:
        """Decode a step while `permit` is held, then work on its logits; seconds of decoding.

        Raises `PassFailed`, `Cancelled`.
        """
        with permit:
            self._send(order)
            seconds: float = self._answer(order.stream, "decoded")
        what, value = self._next(order.stream)
        return NotFinite(*value) if what == "bad" else seconds

    def end(self) -> None:
        """End the process."""
        self._stop.set()
        self._reader.join()

    def _send(self, order: Order) -> None:
        with self._sending:
            self._worker.send(to_line(order))

    def _answer(self, stream: int, wanted: str) -> Any:
        what, value = self._next(stream)
        assert what == wanted, f"{what} came in place of {wanted}"
        return value

    def _next(self, stream: int) -> tuple[str, Any]:
        what, value = self._answers[stream].get()
        if what == _ENDED:
            # For whoever asks next.
            self._answers[stream].put((what, value))
            if self._cancel.is_set():
                raise Cancelled
            problem = self._worker.ending or "its process ended"
            raise PassFailed(self._name, problem, self._worker.last_words)
        if what == "failed":
            raise PassFailed(self._name, str(value), self._worker.last_words)
        return what, value

    def _read(self) -> None:
        try:
            for line in self._worker.lines(self._stop):
                stream, what, value = json.loads(line)
                self._answers[stream].put((what, value))
        except Cancelled:
            pass
        finally:
            for answers in self._answers.values():
                answers.put((_ENDED, None))
