"""What the engine has done since it started, in the text form that Prometheus reads."""

from __future__ import annotations

from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    generate_latest,
)

from veriloop_tui.core.chat import ChatFinished

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


class Metrics:
    """Counters of one engine; for one event loop."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._counter("requests", "HTTP requests answered.", "path", "status")
        self._prompt = self._counter("prompt_tokens", "Tokens of all prompts.")
        self._reused = self._counter("reused_tokens", "Prompt tokens that were not evaluated anew.")
        self._completion = self._counter("completion_tokens", "Tokens of all answers.")
        self._drafted = self._counter("drafted_tokens", "Tokens proposed by speculation.")
        self._accepted = self._counter("accepted_tokens", "Drafted tokens that were right.")
        self._seconds = self._counter("seconds", "Seconds spent in each phase.", "phase")
        self._unfinished = Gauge(
            "veriloop_unfinished_requests",
            "Completions that wait or run; one runs at a time.",
            registry=self.registry,
        )
        self.n_unfinished = 0
        self._unfinished.set_function(lambda: self.n_unfinished)

    def answered(self, path: str, status: int) -> None:
        """A request was answered; `path` is one of the known ones."""
        self._requests.labels(path, str(status)).inc()

    def finished(self, end: ChatFinished) -> None:
        """A completion came to its end."""
        usage, timings = end.usage, end.timings
        self._prompt.inc(usage.prompt_tokens)
        self._reused.inc(usage.reused_tokens)
        self._completion.inc(usage.completion_tokens)
        self._drafted.inc(usage.drafted_tokens)
        self._accepted.inc(usage.accepted_tokens)
        self._seconds.labels("prompt").inc(timings.prompt_ms / 1e3)
        self._seconds.labels("generation").inc(timings.predicted_ms / 1e3)

    def text(self) -> bytes:
        """All values as they are now."""
        return generate_latest(self.registry)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"veriloop_{name}", what, labels, registry=self.registry)
