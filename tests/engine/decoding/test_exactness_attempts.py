"""Attempt n + 1 evaluates only its new tokens, also while drafting, and says the right thing.

The models are scripted; a prompt takes one token per byte, so new tokens can be counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.exact import bench
from tests.models.scripted import write_scripted_draft_gguf, write_scripted_gguf
from tests.models.vocabulary import EOS_TEXT, START_TEXT
from veriloop_tui.core.chat import ChatFinished, ChatRequest, Message, Sampling, TextDelta, Usage
from veriloop_tui.engine.model.loading import Loaded
from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.settings import LoadSettings, Speculation

TASK = Message("user", "Make the tests pass. " * 20)
ANSWERS = {
    "FAILED-ONE": "Größe: I add the sign. " * 12,
    "FAILED-TWO": "I add the sign at the other place.\n" * 9,
    "FAILED-THREE": "数学 is hard, once more. " * 7,
}
FIRST = "Here is the first change:\n" + "    x = 1\n" * 15
SPECIAL = (START_TEXT, EOS_TEXT)

Ask = Callable[[ChatRequest], tuple[str, Usage]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("scripted")
    model = write_scripted_gguf(folder / "m.gguf", ANSWERS, FIRST)
    return model, write_scripted_draft_gguf(folder / "d.gguf", ANSWERS, FIRST, right_share=0.7)


def new_tokens(text: str) -> int:
    """The tokens of a prompt's text: bytes, but for special tokens and triggers."""
    for one in (*SPECIAL, *ANSWERS):
        text = text.replace(one, "\0")
    return len(text.encode())


def attempts(ask: Ask) -> list[Usage]:
    """A conversation of four attempts, each after the evidence of the one before."""
    messages, usages, expected = [TASK], [], FIRST
    for evidence in (*ANSWERS, ""):
        request = ChatRequest(tuple(messages), Sampling(temperature=0.7), 3, 2000)
        said, usage = ask(request)
        assert said == expected
        usages.append(usage)
        messages += [Message("assistant", said), Message("user", f"Not yet: {evidence}")]
        expected = ANSWERS.get(evidence, "")
    return usages


def assert_only_new_tokens_were_evaluated(usages: list[Usage]) -> None:
    first, *later = usages
    assert first.reused_tokens == 0
    for evidence, usage in zip(ANSWERS, later, strict=True):
        turn = (
            f"{EOS_TEXT}\n{START_TEXT}user\nNot yet: {evidence}{EOS_TEXT}\n{START_TEXT}assistant\n"
        )
        assert usage.evaluated_tokens == new_tokens(turn)


def asking(loaded: Loaded) -> Ask:
    def ask(request: ChatRequest) -> tuple[str, Usage]:
        *deltas, end = loaded.run(loaded.prepare(request), lambda: False)
        assert isinstance(end, ChatFinished)
        return "".join(one.text for one in deltas if isinstance(one, TextDelta)), end.usage

    return ask


@pytest.mark.parametrize("lookup", [False, True])
@pytest.mark.parametrize("speculation", ["off", "always"])
def test_each_attempt_evaluates_only_what_is_new_in_it(
    files: tuple[Path, Path], speculation: Speculation, lookup: bool
) -> None:
    model, head = files
    draft = None if speculation == "off" else head
    with bench(model, draft, n_ctx=4096, speculation=speculation, lookup=lookup) as made:
        usages = attempts(asking(made.loaded))

    assert_only_new_tokens_were_evaluated(usages)
    drafted = sum(one.drafted_tokens for one in usages)
    assert (drafted > 0) == (speculation == "always")


def test_each_attempt_through_the_engines_process_evaluates_only_what_is_new_in_it(
    files: tuple[Path, Path],
) -> None:
    model, draft = files
    settings = LoadSettings(model, draft=draft, n_ctx=4096, threads=1, speculation="always")
    with EngineProcess(settings) as process:
        client = process.client()

        def ask(request: ChatRequest) -> tuple[str, Usage]:
            *deltas, end = client.complete(request, threading.Event())
            assert isinstance(end, ChatFinished)
            return "".join(one.text for one in deltas if isinstance(one, TextDelta)), end.usage

        usages = attempts(ask)

    assert_only_new_tokens_were_evaluated(usages)
    assert sum(one.accepted_tokens for one in usages) > 0


def test_the_same_attempt_again_evaluates_one_token(files: tuple[Path, Path]) -> None:
    model, draft = files
    request = ChatRequest((TASK,), Sampling(temperature=0.7), 3, 2000)
    with bench(model, draft, n_ctx=4096, speculation="always") as made:
        ask = asking(made.loaded)
        first, _ = ask(request)

        again, usage = ask(request)

    assert again == first == FIRST
    assert usage.evaluated_tokens == 1
