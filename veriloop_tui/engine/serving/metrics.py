"""What the engine has done since it started, in the text form that Prometheus reads."""

from __future__ import annotations

from typing import Final

from veriloop_tui.core.chat import ChatFinished, Timings, Usage

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# Name, kind, and what it counts; no label ever holds text from outside.
_HELP: Final = (
    ("requests_total", "counter", "HTTP requests answered."),
    ("prompt_tokens_total", "counter", "Tokens of all prompts."),
    ("reused_tokens_total", "counter", "Prompt tokens that were not evaluated anew."),
    ("completion_tokens_total", "counter", "Tokens of all answers."),
    ("drafted_tokens_total", "counter", "Tokens proposed by speculation."),
    ("accepted_tokens_total", "counter", "Drafted tokens that were right."),
    ("seconds_total", "counter", "Seconds spent in each phase."),
    ("unfinished_requests", "gauge", "Completions that wait or run; one runs at a time."),
)


class Metrics:
    """Counters of one engine; for one event loop."""

    def __init__(self) -> None:
        self.n_unfinished = 0
        # By name and labels.
        self._values: dict[tuple[str, str], float] = {}
        # A counter that is there from the start shows its first step.
        self.finished(ChatFinished("stop", Usage(0, 0, 0), Timings(0.0, 0.0)))

    def answered(self, path: str, status: int) -> None:
        """A request was answered; `path` is one of the known ones."""
        self._add("requests_total", 1, f'{{path="{path}",status="{status}"}}')

    def finished(self, end: ChatFinished) -> None:
        """A completion came to its end."""
        usage, timings = end.usage, end.timings
        for name, value in (
            ("prompt_tokens_total", usage.prompt_tokens),
            ("reused_tokens_total", usage.reused_tokens),
            ("completion_tokens_total", usage.completion_tokens),
            ("drafted_tokens_total", usage.drafted_tokens),
            ("accepted_tokens_total", usage.accepted_tokens),
        ):
            self._add(name, value)
        self._add("seconds_total", timings.prompt_ms / 1e3, '{phase="prompt"}')
        self._add("seconds_total", timings.predicted_ms / 1e3, '{phase="generation"}')

    def text(self) -> str:
        """All values as they are now."""
        values = {**self._values, ("unfinished_requests", ""): self.n_unfinished}
        lines: list[str] = []
        for name, kind, what in _HELP:
            lines += [f"# HELP veriloop_{name} {what}", f"# TYPE veriloop_{name} {kind}"]
            lines += [
                f"veriloop_{name}{labels} {value:.12g}"
                for (one, labels), value in values.items()
                if one == name
            ]
        return "\n".join(lines) + "\n"

    def _add(self, name: str, value: float, labels: str = "") -> None:
        self._values[name, labels] = self._values.get((name, labels), 0) + value
