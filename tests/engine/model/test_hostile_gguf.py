"""Files that would corrupt, abort or mislead llama.cpp: what is wrong is said, and the app lives.

The models are random; each file is given to a real engine. Refusals by the header alone are in
`test_gguf_facts`, some of a plain model's in `test_process`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine import broken
from tests.engine.broken import Break
from tests.models.noise import write_random_draft_gguf, write_random_gguf
from veriloop_tui.core.chat import ChatFinished, ChatRequest, Message, Sampling, TextDelta, Usage
from veriloop_tui.engine.model.loading import Loaded
from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import (
    EngineRefused,
    EngineStartFailed,
    ModelFileInvalid,
)

NEVER = threading.Event()
DEPTH = 0.3  # what the random models add to a token: so little that their heads are often right


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("target") / "model.gguf"
    return write_random_gguf(path, "qwen35", 7, depth=DEPTH)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("head") / "head.gguf"
    return write_random_draft_gguf(path, "qwen35", 7, depth=DEPTH)


def settings(model: Path, draft: Path | None = None) -> LoadSettings:
    """Drafting whatever it costs, with the head alone."""
    return LoadSettings(
        model, draft=draft, n_ctx=1024, threads=1, speculation="always", lookup=False
    )


def asking(text: str, max_tokens: int = 20) -> ChatRequest:
    return ChatRequest((Message("user", text),), Sampling(temperature=0.0), 1, max_tokens)


def answer(process: EngineProcess) -> tuple[str, ChatFinished]:
    *deltas, end = process.client().complete(asking("hello"), NEVER)
    assert isinstance(end, ChatFinished)
    return "".join(one.text for one in deltas if isinstance(one, TextDelta)), end


# A file as the main model.


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (broken.number("block_count", 0), "0 blocks"),
        (broken.number("block_count", 9999), "9999 blocks"),
        (broken.number("nextn_predict_layers", 6), "6 draft layers in 5 blocks"),
        (broken.number("attention.head_count_kv", 3), "cannot be shared by 3"),
        (broken.repeated_token, "repeat"),
        (broken.cut_short, "cut short"),
        (broken.garbage, "not a GGUF file"),
        (broken.nothing, "not a GGUF file"),
    ],
)
def test_a_hybrid_model_that_would_end_the_engine_is_refused_before_one_is_started(
    tmp_path: Path, change: Break, words: str
) -> None:
    sound = write_random_gguf(tmp_path / "sound.gguf", "qwen35", 7, layers=1)
    (tmp_path / "bad.gguf").write_bytes(change(sound.read_bytes()))
    process = EngineProcess(settings(tmp_path / "bad.gguf"))

    with pytest.raises(ModelFileInvalid, match=words):
        process.start()

    assert process.pid is None


def test_a_draft_head_given_as_the_main_model_is_refused_and_its_place_is_named(head: Path) -> None:
    process = EngineProcess(settings(head))

    with pytest.raises(ModelFileInvalid, match="draft head only; give it beside a target"):
        process.start()

    assert process.pid is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (broken.renamed("blk.1.ssm_conv1d.weight", "blk.1.ssm_conv1e.weight"), "ssm_conv1d"),
        (broken.renamed("blk.4.nextn.enorm.weight", "blk.4.nextn.enora.weight"), "nextn.enorm"),
        (broken.number("block_count", 6), "blk"),
    ],
)
def test_what_only_llama_cpp_can_find_is_told_by_the_engines_last_words(
    tmp_path: Path, change: Break, named: str
) -> None:
    sound = write_random_gguf(tmp_path / "sound.gguf", "qwen35", 7, layers=1)
    (tmp_path / "bad.gguf").write_bytes(change(sound.read_bytes()))
    process = EngineProcess(settings(tmp_path / "bad.gguf"))

    with pytest.raises(EngineStartFailed, match=named):
        process.start()

    assert process.pid is None
    process.stop()


def test_an_abort_that_no_check_foresaw_ends_the_engine_alone(target: Path, tmp_path: Path) -> None:
    odd = broken.number("ssm.inner_size", 33)
    (tmp_path / "bad.gguf").write_bytes(odd(target.read_bytes()))
    process = EngineProcess(settings(tmp_path / "bad.gguf"))

    with pytest.raises(EngineStartFailed, match=r"SIGABRT.*GGML_ASSERT"):
        process.start()

    assert process.pid is None
    process.stop()


def test_a_model_that_computes_no_numbers_refuses_each_request_and_stays(
    target: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(broken.no_numbers("output_norm.weight")(target.read_bytes()))

    with EngineProcess(settings(bad)) as process:
        for _ in range(2):
            with pytest.raises(EngineRefused, match="computes no numbers"):
                answer(process)


# A file as the draft head.


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (broken.cut_short, "cut short"),
        (broken.renamed("nextn.eh_proj", "nextn.xx_proj"), "could not load it"),
        (broken.renamed("blk.4.attn_q.weight", "blk.4.attn_x.weight"), "could not load it"),
        (broken.number("attention.head_count_kv", 3), "cannot be shared"),
    ],
)
def test_a_broken_draft_head_is_refused_and_answers_come_without_it(
    target: Path, head: Path, tmp_path: Path, change: Break, words: str
) -> None:
    (tmp_path / "bad.gguf").write_bytes(change(head.read_bytes()))

    assert_goes_on_without(target, tmp_path / "bad.gguf", words)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: write_random_draft_gguf(path, "qwen35", 7, width=96), "width is 96"),
        (
            lambda path: write_random_draft_gguf(path, "qwen35", 7, more_tokens=3),
            "vocabulary is 261",
        ),
        (lambda path: write_random_draft_gguf(path, "qwen35", 7, layers=2), "runs one"),
        (lambda path: write_random_gguf(path, "qwen35", 7), "no draft layers"),
        (lambda path: write_random_gguf(path, "llama", 7), "no draft layers"),
        (lambda path: write_random_draft_gguf(path, "qwen35moe", 7), "architecture is qwen35moe"),
        (lambda path: write_random_draft_gguf(path, "hy_v3", 7, layers=3), "architecture is hy_v3"),
    ],
)
def test_a_file_that_is_not_this_models_head_is_refused_and_answers_come_without_it(
    target: Path, tmp_path: Path, write: Callable[[Path], Path], words: str
) -> None:
    assert_goes_on_without(target, write(tmp_path / "other.gguf"), words)


def assert_goes_on_without(target: Path, draft: Path, words: str) -> None:
    """In this process: these files are known not to end it."""
    loaded = Loaded(settings(target, draft), lambda: True)
    alone = Loaded(settings(target), lambda: True)

    answered, expected = ask(loaded), ask(alone)

    assert answered == expected
    assert answered[1].drafted_tokens == 0
    (notice,) = loaded.decoder.notices
    assert notice.startswith("The draft head is not used: ")
    assert words in notice
    loaded.close()
    alone.close()


def ask(loaded: Loaded) -> tuple[str, Usage]:
    *deltas, end = loaded.run(loaded.prepare(asking("hello")), lambda: False)
    assert isinstance(end, ChatFinished)
    return "".join(one.text for one in deltas if isinstance(one, TextDelta)), end.usage


def test_a_head_that_computes_no_numbers_is_never_right_and_changes_nothing(
    target: Path, head: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(broken.no_numbers("blk.4.nextn.shared_head_norm.weight")(head.read_bytes()))
    loaded, sound = (
        Loaded(settings(target, bad), lambda: True),
        Loaded(settings(target, head), lambda: True),
    )

    (text, usage), (expected, usual) = ask(loaded), ask(sound)

    assert text == expected
    assert usage.accepted_tokens == 0 < usage.drafted_tokens
    assert usual.accepted_tokens > 0
    loaded.close()
    sound.close()


@pytest.mark.parametrize(
    "change",
    [
        broken.number("block_count", 0),
        broken.number("block_count", 9999),
        broken.number("nextn_predict_layers", 9),
        broken.repeated_token,
        broken.garbage,
        broken.nothing,
    ],
)
def test_a_draft_file_that_would_end_the_engine_is_refused_and_answers_come_without_it(
    target: Path, head: Path, tmp_path: Path, change: Break
) -> None:
    (tmp_path / "bad.gguf").write_bytes(change(head.read_bytes()))

    with EngineProcess(settings(target, tmp_path / "bad.gguf")) as process:
        (notice,) = process.client().facts().notices
        assert notice.startswith("The draft head is not used: ")
        assert answer(process)[1].usage.drafted_tokens == 0


def test_a_sound_head_drafts_and_one_that_is_not_there_is_missed(
    target: Path, head: Path, tmp_path: Path
) -> None:
    with EngineProcess(settings(target, head)) as process:
        text, end = answer(process)
        assert process.client().facts().notices == ()
    with EngineProcess(settings(target, tmp_path / "absent.gguf")) as process:
        alone, bare = answer(process)
        assert "absent.gguf" in process.client().facts().notices[0]

    assert text == alone
    assert end.usage.drafted_tokens > 0 == bare.usage.drafted_tokens
