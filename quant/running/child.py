"""The process that runs one model: orders come in on standard input, answers go out.

Each stream has a thread of its own, so that one decodes while another one scores. It ends with the
program that started it, whatever happens to that one.
"""

from __future__ import annotations

import json
import mmap
import os
import queue
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from typing import Any, Final, TextIO

import numpy as np

from quant.losses.scoring import Packed, Scorer, not_finite
from quant.losses.statistics import Values
from quant.running.llama import DecodeFailed, Stream, load, speeds, vocabulary_size
from quant.running.order import Close, Load, Open, Region, Run, Speed, from_line
from veriloop_tui.engine.decoding.llama import silence_logs

_POLL_SECONDS: Final = 0.5


class _Answers:
    """Lines for the program, one at a time from any thread."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._lock = out, threading.Lock()

    def say(self, stream: int, what: str, value: object) -> None:
        with self._lock:
            print(json.dumps([stream, what, value]), file=self._out, flush=True)


@dataclass(slots=True)
class _Lane:
    """A stream's thread with what it works on."""

    stream: Stream
    scorer: Scorer
    packed: Packed
    losses: Values
    orders: queue.SimpleQueue[Run | None]
    thread: threading.Thread | None = None


class _Worker:
    def __init__(self, model: Any, vocabulary: int, shared: int, answers: _Answers) -> None:
        self._model, self._vocabulary, self._shared = model, vocabulary, shared
        self._answers = answers
        self._lanes: list[_Lane] = []

    def open(self, order: Open) -> None:
        self.close()
        region = Region(order.rows, order.vocabulary)
        memory = mmap.mmap(self._shared, region.size * order.streams)
        for number in range(order.streams):
            lane = _Lane(
                Stream(self._model, order.context, self._vocabulary),
                Scorer(order.vocabulary),
                region.packed(memory, number),
                region.losses(memory, number),
                queue.SimpleQueue(),
            )
            lane.thread = threading.Thread(target=self._serve, args=(number, lane), daemon=True)
            lane.thread.start()
            self._lanes.append(lane)

    def close(self) -> None:
        for lane in self._lanes:
            lane.orders.put(None)
        for lane in self._lanes:
            if lane.thread is not None:
                lane.thread.join()
            lane.stream.close()
        self._lanes.clear()

    def run(self, order: Run) -> None:
        self._lanes[order.stream].orders.put(order)

    def speed(self, order: Speed) -> tuple[list[float], list[float]]:
        stream = Stream(self._model, order.context, self._vocabulary)
        try:
            return speeds(
                stream, order.prompt, order.generated, order.repeats, order.context.n_ubatch
            )
        finally:
            stream.close()

    def _serve(self, number: int, lane: _Lane) -> None:
        with np.errstate(all="ignore"):
            while (order := lane.orders.get()) is not None:
                try:
                    before = time.perf_counter()
                    logits = lane.stream.decode(order)
                    self._answers.say(number, "decoded", time.perf_counter() - before)
                except DecodeFailed as problem:
                    self._answers.say(number, "failed", str(problem))
                    continue
                bad = _score(lane, order, logits)
                self._answers.say(number, "scored" if bad is None else "bad", bad)


def _score(lane: _Lane, order: Run, logits: Values) -> tuple[int, int] | None:
    """Losses of a step into shared memory; sequence and row of the first that is not finite."""
    at = 0
    for number, targets in enumerate(order.targets):
        rows = logits[number * order.outputs :][: len(targets)]
        bad = not_finite(rows[:, : lane.scorer.vocabulary])
        if bad is not None:
            return number, bad
        packed = lane.packed[at : at + len(targets)]
        log_sums = lane.scorer.log_sums(rows)
        if order.work == "pack":
            lane.scorer.pack(rows, log_sums, packed, order.floor)
        wanted = np.array(targets, np.int32)
        losses = lane.scorer.score(rows, log_sums, packed, wanted)
        lane.losses[:, at : at + len(targets)] = losses
        at += len(targets)
    return None


def _end_with_thread(fault: threading.ExceptHookArgs) -> None:
    """End the process when a thread fails: its answers would be waited for without end."""
    traceback.print_exception(fault.exc_type, fault.exc_value, fault.exc_traceback)
    sys.stderr.flush()
    os._exit(1)


def _watch_parent() -> None:
    """End when the program is gone: a batch of a large model may take minutes."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(0)


def _serve(worker: _Worker, answers: _Answers) -> None:
    for line in sys.stdin:
        order = from_line(line)
        try:
            match order:
                case Open():
                    worker.open(order)
                    answers.say(-1, "opened", None)
                case Close():
                    worker.close()
                    answers.say(-1, "closed", None)
                case Speed():
                    answers.say(-1, "speeds", worker.speed(order))
                case Run():
                    worker.run(order)
        except DecodeFailed as problem:
            answers.say(-1, "failed", str(problem))


def main() -> int:
    """Run the model that the first argument names; 0 if all went well."""
    threading.excepthook = _end_with_thread
    threading.Thread(target=_watch_parent, daemon=True).start()
    silence_logs()
    order = Load(**json.loads(sys.argv[1]))
    # Whatever native code prints must not come between the answers.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        answers = _Answers(out)
        model = load(order.model, order.gpu_layers)
        if not model:
            return 1
        size = vocabulary_size(model)
        answers.say(-1, "loaded", size)
        _serve(_Worker(model, size, order.shared, answers), answers)
        return 0


if __name__ == "__main__":
    sys.exit(main())
