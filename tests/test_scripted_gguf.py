"""The models that other tests stand on, in the real llama.cpp: all are scripted or random."""

import ctypes
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import llama_cpp
import numpy as np
import pytest
from llama_cpp import Llama, llama_cpp_ext
from numpy.typing import NDArray

from tests.scripted_gguf import (
    Architecture,
    write_random_gguf,
    write_scripted_draft_gguf,
    write_scripted_gguf,
)

EDIT = """Here is the fix: `add` must add.

src/calc.py
```python
<<<<<<< SEARCH
def add(a: int, b: int) -> int:
    return a - b
=======
def add(a: int, b: int) -> int:
    return a + b
>>>>>>> REPLACE
```
"""
UNICODE = (
    'Größe → "naïve" 数学 🎉\u200d\U0001f600 e\u0301\tend\r\n'
    "TASK-EDIT, <s>no</s> [EOT] <|im_end|> \x00"
)
LONG = "".join(random.Random(7).choices("abcdef ()=:\n", k=4000))
DEFAULT = "I do not know."
SCRIPTS = {"TASK-EDIT": EDIT, "TASK-UNICODE": UNICODE, "TASK-LONG": LONG, "TASK-EMPTY": ""}
# The sixteen scripts of MANY say the same, but for the last word: their pieces' texts collide.
MANY = {f"CASE-{number:02d}!": f"The very same words, {number}." for number in range(16)}


def load(path: Path, n_ctx: int = 16384) -> Llama:
    return Llama(str(path), n_ctx=n_ctx, n_batch=512, n_threads=1, n_threads_batch=1, verbose=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    path = tmp_path_factory.mktemp("scripted") / "scripted.gguf"
    llama = load(write_scripted_gguf(path, SCRIPTS, DEFAULT))
    yield llama
    llama.close()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    path = tmp_path_factory.mktemp("scripted") / "many.gguf"
    llama = load(write_scripted_gguf(path, MANY, DEFAULT))
    yield llama
    llama.close()


def clear(model: Any) -> None:
    """Empty the context. (`Any` because llama_cpp leaves this method without types.)"""
    model.reset()


def prompt_tokens(model: Llama, user: str) -> list[int]:
    template = jinja2.Environment(autoescape=False).from_string(
        model.metadata["tokenizer.chat_template"]
    )
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": user}]
    prompt = template.render(messages=messages, add_generation_prompt=True)
    assert prompt.endswith(f"{user}<|im_end|>\n<|im_start|>assistant\n")
    return model.tokenize(prompt.encode(), add_bos=False, special=True)


def is_end(model: Llama, token: int) -> bool:
    return bool(llama_cpp.llama_vocab_is_eog(model._model.vocab, token))


def answer_tokens(model: Llama, prompt: list[int], **sampling: Any) -> list[int]:
    """The ids said after the prompt, from an empty context, without the EOS that must come."""
    clear(model)
    said: list[int] = []
    for token in model.generate(prompt, **({"temp": 0.0} | sampling)):
        if is_end(model, token):
            return said
        said.append(token)
    raise AssertionError("no EOS")


def answer(model: Llama, user: str, **sampling: Any) -> str:
    return model.detokenize(answer_tokens(model, prompt_tokens(model, user), **sampling)).decode()


@pytest.mark.parametrize("trigger", SCRIPTS)
def test_each_script_is_recited_exactly(model: Llama, trigger: str) -> None:
    assert answer(model, f"Please do {trigger}, thank you.") == SCRIPTS[trigger]


@pytest.mark.parametrize(
    "user", ["", "Hello", "task-edit TASK EDIT TASK-", "日本 \x00\r\n <0x41>~1"]
)
def test_the_default_is_recited_where_no_trigger_is(model: Llama, user: str) -> None:
    assert answer(model, user) == DEFAULT


@pytest.mark.parametrize(
    "user",
    [
        "TASK-LONGTASK-EDITTASK-UNICODE",
        "TASK-UNICODE TASK-EDIT TASK-UNICODE",
        "TASK-EDIT " * 300 + "TASK-UNICODE" + "\nE   assert 1 == 2" * 50,
        f"{EDIT}TASK-EDIT{LONG}...xTASK-UNICODEx",
    ],
)
def test_the_last_trigger_wins(model: Llama, user: str) -> None:
    assert answer(model, user) == UNICODE


def test_each_of_sixteen_scripts_is_told_from_the_others(many: Llama) -> None:
    everything = "".join(MANY)
    assert {key: answer(many, everything + key) for key in MANY} == MANY


def test_a_trigger_is_remembered_over_eight_thousand_tokens(model: Llama) -> None:
    prompt = prompt_tokens(model, "TASK-UNICODE: " + LONG * 2)
    assert len(prompt) > 8000
    assert model.detokenize(answer_tokens(model, prompt)).decode() == UNICODE


def test_nothing_is_mistaken_for_a_trigger_in_six_thousand_tokens(model: Llama) -> None:
    prompt = prompt_tokens(model, (LONG + EDIT * 20)[:6000])
    assert len(prompt) > 6000
    assert model.detokenize(answer_tokens(model, prompt)).decode() == DEFAULT


@pytest.mark.parametrize("seed", range(5))
def test_temperature_does_not_change_the_recitation(model: Llama, seed: int) -> None:
    model.set_seed(seed)
    free = {"temp": 0.8, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    assert answer(model, "TASK-EDIT", **free) == EDIT


def test_the_prompt_and_the_scripts_share_no_token(model: Llama) -> None:
    said = answer_tokens(model, prompt_tokens(model, "TASK-EDIT"))
    assert not set(said) & set(model.tokenize(EDIT.encode(), add_bos=False, special=True))


def test_a_second_answer_in_the_same_context_follows_the_new_trigger(model: Llama) -> None:
    first = prompt_tokens(model, "TASK-EDIT")
    history = first + answer_tokens(model, first)
    more = model.tokenize(b"<|im_end|>\nNo: TASK-UNICODE", add_bos=False, special=True)
    assert model.detokenize(answer_tokens(model, history + more)).decode() == UNICODE


def test_an_answer_by_ids_does_not_count_as_a_trigger(model: Llama) -> None:
    first = prompt_tokens(model, "TASK-UNICODE")
    history = first + answer_tokens(model, first)  # says TASK-EDIT, but in tokens of its own
    more = model.tokenize(b"<|im_end|>\nAgain.", add_bos=False, special=True)
    assert model.detokenize(answer_tokens(model, history + more)).decode() == UNICODE


def test_the_chat_completion_of_the_high_level_api_recites_too(model: Llama) -> None:
    clear(model)
    reply: Any = model.create_chat_completion(
        [{"role": "user", "content": "TASK-EDIT"}], max_tokens=None, temperature=0.8
    )
    assert reply["choices"][0]["message"]["content"] == EDIT
    assert reply["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("piece_bytes", [1, 2, 16, 32])
def test_pieces_of_any_length_say_the_same(tmp_path: Path, piece_bytes: int) -> None:
    path = tmp_path / "scripted.gguf"
    write_scripted_gguf(path, SCRIPTS, DEFAULT, piece_bytes=piece_bytes)
    model = load(path)
    assert answer(model, "TASK-UNICODE") == UNICODE
    assert answer(model, "TASK-LONG") == LONG
    assert answer(model, "") == DEFAULT
    model.close()


def test_text_that_llama_cpp_takes_for_an_end_token_is_said_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "scripted.gguf"
    write_scripted_gguf(path, {"TASK-FIVE": "[EOT]_<EOT>.."}, "</s></s>.", piece_bytes=5)
    model = load(path, n_ctx=512)
    assert answer(model, "") == "</s></s>."
    assert answer(model, "TASK-FIVE") == "[EOT]_<EOT>.."
    model.close()


@pytest.mark.parametrize("piece_bytes", [1, 4])
def test_four_kilobytes_of_scripts_make_a_file_below_3_mb(tmp_path: Path, piece_bytes: int) -> None:
    path = tmp_path / "scripted.gguf"
    write_scripted_gguf(path, {"TASK-LONG": LONG}, DEFAULT, piece_bytes=piece_bytes)
    assert path.stat().st_size < 3_000_000


def test_a_scripted_model_needs_no_trigger_at_all(tmp_path: Path) -> None:
    model = load(write_scripted_gguf(tmp_path / "scripted.gguf", {}, DEFAULT), n_ctx=512)
    assert answer(model, "Hello") == DEFAULT
    model.close()


@pytest.mark.parametrize("trigger", ["", "x", "<|im_end|>"])
def test_an_unusable_trigger_is_refused(tmp_path: Path, trigger: str) -> None:
    with pytest.raises(ValueError, match="cannot be a trigger"):
        write_scripted_gguf(tmp_path / "scripted.gguf", {trigger: EDIT}, DEFAULT)


def test_more_pieces_than_codes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="more than 65535"):
        write_scripted_gguf(tmp_path / "scripted.gguf", {}, "[" * 65536)


def foretold(path: Path, tokens: list[int]) -> list[int]:
    """What a draft head takes for each token's successor, its hidden states all zero."""
    settings = llama_cpp.llama_model_default_params()
    settings.load_mtp = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), settings)
    assert model
    context_settings = llama_cpp.llama_context_default_params()
    context_settings.n_ctx = context_settings.n_batch = 512
    context_settings.ctx_type = llama_cpp.LLAMA_CONTEXT_TYPE_MTP
    context = llama_cpp.llama_init_from_model(model, context_settings)
    assert context
    llama_cpp_ext.llama_set_embeddings_nextn(context, True, True)
    width = llama_cpp.llama_model_n_embd(model)
    batch = llama_cpp.llama_batch_init(len(tokens), width, 1)
    ids = (llama_cpp.llama_token * len(tokens))(*tokens)
    batch.token = ctypes.cast(ids, type(batch.token))
    ctypes.memset(batch.embd, 0, len(tokens) * width * 4)
    batch.n_tokens = len(tokens)
    for at in range(len(tokens)):
        batch.pos[at], batch.n_seq_id[at], batch.logits[at] = at, 1, True
        batch.seq_id[at][0] = 0
    assert llama_cpp.llama_decode(context, batch) == 0
    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    logits = np.ctypeslib.as_array(
        llama_cpp.llama_get_logits(context), shape=(len(tokens), n_vocab)
    )
    best: list[int] = logits.argmax(axis=1).tolist()
    batch.token = type(batch.token)()  # the array is Python's, not to be freed with the batch
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return best


@pytest.mark.parametrize("right_share", [1.0, 0.7, 0.0])
def test_a_draft_head_foretells_the_wanted_share_of_a_recitation(
    model: Llama, tmp_path: Path, right_share: float
) -> None:
    path = tmp_path / "draft.gguf"
    write_scripted_draft_gguf(path, SCRIPTS, DEFAULT, right_share=right_share)
    said = answer_tokens(model, prompt_tokens(model, "TASK-LONG"))[:500]
    best = foretold(path, said[:-1])
    right = np.mean([guess == token for guess, token in zip(best, said[1:], strict=True)])
    assert right == pytest.approx(right_share, abs=0 if right_share in (0, 1) else 0.05)


def last_logits(model: Any, tokens: list[int]) -> NDArray[np.float32]:
    """The logits [vocabulary] after `tokens`, evaluated from an empty context."""
    clear(model)
    model.eval(tokens)
    logits = model._ctx.get_logits()
    return np.ctypeslib.as_array(logits, shape=(model.n_vocab(),)).copy()


@pytest.mark.parametrize("architecture", ["llama", "qwen35"])
def test_every_token_of_the_past_moves_the_logits_of_a_random_model(
    tmp_path: Path, architecture: Architecture
) -> None:
    model = load(write_random_gguf(tmp_path / "random.gguf", architecture, seed=1), n_ctx=512)
    tokens = np.random.default_rng(0).integers(0, 256, 200).tolist()
    logits = last_logits(model, tokens)
    assert np.isfinite(logits).all()
    assert np.array_equal(logits, last_logits(model, tokens))
    for at in (0, 100, 198):
        other = [*tokens[:at], (tokens[at] + 1) % 256, *tokens[at + 1 :]]
        assert np.abs(logits - last_logits(model, other)).max() > 0.01
    model.close()


@pytest.mark.parametrize("architecture", ["llama", "qwen35"])
def test_a_random_model_is_determined_by_its_seed(
    tmp_path: Path, architecture: Architecture
) -> None:
    one, same, other = (
        write_random_gguf(tmp_path / f"{name}.gguf", architecture, seed).read_bytes()
        for name, seed in (("one", 1), ("same", 1), ("other", 2))
    )
    assert one == same
    assert one != other
