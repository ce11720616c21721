"""Measuring a loaded model in the engine's process: rounds in turns, one JSON line per answer.

Run as `python -m veriloop_tui.engine.model.measure`, with the prompts as JSON on standard input.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from veriloop_tui.core.chat import ChatEvent, ChatFinished, ChatRequest, Message, Sampling
from veriloop_tui.engine.job import Job
from veriloop_tui.engine.model.loading import Loaded
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import EngineError

_REUSED_TOKENS: Final = 3_000
_NEW_TEXT: Final = " And now, in other words: what would you change first, and why? Be brief." * 3
_CANDIDATES: Final = 8

Record = dict[str, Any]


class Ways:
    """The ways of decoding that a loaded model has: with and without each source of drafts."""

    def __init__(self, loaded: Loaded) -> None:
        self._decoder = loaded.decoder
        self._head, self._pace = loaded.decoder.head, loaded.decoder.pace
        self._lookup = loaded.decoder.lookup

    @property
    def names(self) -> tuple[str, ...]:
        """Plain decoding first."""
        if self._pace is None:
            return ("plain",)
        with_head = ("head", "both") if self._head is not None else ()
        return ("plain", *(("lookup",) if self._lookup else ()), *with_head)

    @contextmanager
    def only(self, way: str) -> Iterator[None]:
        """Decode this way, from an empty memory; everything is as before afterwards."""
        decoder = self._decoder
        decoder.forget()
        decoder.head = self._head if way in ("head", "both") else None
        decoder.pace = self._pace if way != "plain" else None
        decoder.lookup = self._lookup and way in ("lookup", "both")
        decoder.memory.emit_hidden(decoder.head is not None)
        try:
            yield
        finally:
            decoder.head, decoder.pace, decoder.lookup = self._head, self._pace, self._lookup
            decoder.memory.emit_hidden(self._head is not None)
            decoder.forget()


def measure(
    loaded: Loaded, prompts: Sequence[Mapping[str, str]], rounds: int, max_tokens: int
) -> Iterator[Record]:
    """All measurements, one record each. Raises `EngineError`."""
    ways = Ways(loaded)
    for number in range(rounds):
        for prompt in prompts:
            job = _job(loaded, prompt["text"], max_tokens)
            for way in ways.names:
                with ways.only(way):
                    yield _record(way, prompt["name"], number, loaded.decoder.run(job, _never))
        with ways.only("plain"):
            yield from _reuse(loaded, prompts, number)
        with ways.only("plain"):
            yield from _candidates(loaded, prompts[0]["text"], number, max_tokens)


def _reuse(loaded: Loaded, prompts: Sequence[Mapping[str, str]], number: int) -> Iterator[Record]:
    """A long prompt, and the same with a little more at its end."""
    text = "\n\n".join(prompt["text"] for prompt in prompts)
    tokens = loaded.model.vocabulary.parse(text)
    most = min(_REUSED_TOKENS, loaded.memory.n_ctx * 3 // 4)
    long = (tokens * (most // max(1, len(tokens)) + 1))[:most]
    new = loaded.model.vocabulary.parse(_NEW_TEXT)[:50]
    for way, prompt in (("cold", long), ("reused", [*long, *new])):
        job = Job(tuple(prompt), "", _GREEDY, 1, 1)
        yield _record(way, "long", number, loaded.decoder.run(job, _never))


def _candidates(loaded: Loaded, text: str, number: int, max_tokens: int) -> Iterator[Record]:
    """Several answers to a prompt in one batch, and one after the other with the prompt reused."""
    job = _job(loaded, text, max_tokens)
    many = Job(job.prompt, job.text, Sampling(), 1, max_tokens, n=_CANDIDATES)
    if loaded.memory.sequences >= _CANDIDATES:
        yield _record("candidates", "eight", number, loaded.decoder.run(many, _never))
    single = [
        Job(job.prompt, job.text, Sampling(), 1 + index, max_tokens) for index in range(_CANDIDATES)
    ]
    loaded.decoder.forget()
    records = [_record("", "", number, loaded.decoder.run(one, _never)) for one in single]
    total = {key: sum(one[key] for one in records) for key in records[0] if key.endswith(_SUMMED)}
    yield {"way": "candidates one by one", "prompt": "eight", "round": number, **total}


_SUMMED: Final = ("_ms", "_tokens")
_GREEDY: Final = Sampling(temperature=0.0)


def _job(loaded: Loaded, text: str, max_tokens: int) -> Job:
    return loaded.prepare(ChatRequest((Message("user", text),), _GREEDY, 1, max_tokens))


def _record(way: str, prompt: str, number: int, events: Iterator[ChatEvent]) -> Record:
    *_, end = events
    assert isinstance(end, ChatFinished)
    usage, spent = end.usage, end.timings
    return {
        "way": way,
        "prompt": prompt,
        "round": number,
        "prompt_ms": spent.prompt_ms,
        "predicted_ms": spent.predicted_ms,
        "prompt_tokens": usage.prompt_tokens,
        "reused_tokens": usage.reused_tokens,
        "completion_tokens": usage.completion_tokens,
        "drafted_tokens": usage.drafted_tokens,
        "accepted_tokens": usage.accepted_tokens,
    }


def _never() -> bool:
    return False


def main(say: Callable[[str], object] = print) -> int:
    """The command line of the measuring process; returns its exit code."""
    parser = argparse.ArgumentParser(prog="veriloop-measure")
    parser.add_argument("--load", type=LoadSettings.from_json, required=True, metavar="JSON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=128)
    given: Any = parser.parse_args()
    prompts = json.load(sys.stdin)
    try:
        loaded = Loaded(given.load, lambda: True)
        facts = {
            "name": loaded.facts.name,
            "file_size": loaded.facts.file_size,
            "bpw": loaded.facts.bpw,
            "quant": loaded.facts.quant,
            "n_ctx": loaded.facts.n_ctx,
            "notices": loaded.decoder.notices,
        }
        say(json.dumps({"facts": facts}))
        sys.stdout.flush()
        for record in measure(loaded, prompts, given.rounds, given.max_tokens):
            say(json.dumps(record))
            sys.stdout.flush()
        loaded.close()
    except EngineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
