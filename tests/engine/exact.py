"""A loaded model whose answers can be compared, token for token, however they were computed.

Flash attention is off and KV is F32: then the number of tokens in a batch changes no draw here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from veriloop_tui.core.chat import (
    CandidateEnded,
    ChatFinished,
    FinishReason,
    Sampling,
    TextDelta,
    Usage,
)
from veriloop_tui.engine.decoding.memory import Cancelled
from veriloop_tui.engine.job import Job
from veriloop_tui.engine.model.loading import Loaded
from veriloop_tui.engine.settings import LoadSettings

N_CTX = 1536
EXACT: dict[str, Any] = {"flash_attention": "off", "type_k": "f32", "type_v": "f32"}
GREEDY = Job((), "", Sampling(temperature=0.0), seed=1, max_tokens=50)
SAMPLED = replace(GREEDY, sampling=Sampling(temperature=0.6, top_k=0, top_p=1.0, min_p=0.0))


def never() -> bool:
    return False


@dataclass
class After:
    """Cancels once it was asked more than `calls` times."""

    calls: int

    def __call__(self) -> bool:
        self.calls -= 1
        return self.calls < 0


@dataclass(frozen=True)
class Said:
    """What an answer was: its text and end by candidate, and the tokens in the memory after it."""

    texts: tuple[str, ...]
    ends: tuple[FinishReason, ...]
    made: int
    memory: tuple[int, ...]
    usage: Usage = field(compare=False)


class Bench:
    """A loaded model; `cold` makes each answer start from an empty memory."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded

    def say(self, prompt: Sequence[int], job: Job = GREEDY, cancelled: Cancelled = never) -> Said:
        """Answer, reusing what is in the memory."""
        texts, ends = [""] * job.n, {}
        for event in self.loaded.decoder.run(replace(job, prompt=tuple(prompt)), cancelled):
            match event:
                case TextDelta():
                    texts[event.index] += event.text
                case CandidateEnded():
                    ends[event.index] = event.finish_reason
                case ChatFinished():
                    ends.setdefault(0, event.finish_reason)
                    end = event
        in_order = tuple(ends.get(i, "cancelled") for i in range(job.n))
        kept = self.loaded.memory.tokens if job.n == 1 else ()
        return Said(tuple(texts), in_order, end.usage.completion_tokens, kept, end.usage)

    def cold(self, prompt: Sequence[int], job: Job = GREEDY) -> Said:
        """Answer from an empty memory."""
        self.loaded.decoder.forget()
        return self.say(prompt, job)


@contextmanager
def bench(model: Path, draft: Path | None = None, **more: Any) -> Iterator[Bench]:
    """A model in the exact setting, and without drafts, unless `more` says otherwise."""
    given = {"speculation": "off", "lookup": False, "n_ctx": N_CTX, **EXACT, **more}
    loaded = Loaded(LoadSettings(model, draft=draft, threads=1, **given), lambda: True)
    assert not loaded.decoder.notices
    try:
        yield Bench(loaded)
    finally:
        loaded.close()
