import hashlib
import json
import threading
import zipfile
from pathlib import Path

import pytest

from quant.corpora.chat import SpecialTokens, open_corpus, render_chat
from quant.corpora.corpora import SHIPPED, kind_of, read_text
from quant.corpora.recipes import fetch, find_recipe, read_recipes
from tests.quant.files import smollm_path
from tests.scripted_gguf import write_random_gguf
from veriloop_tui.engine.answer.template import ChatTemplate
from veriloop_tui.errors import CorpusInvalid, EngineStartFailed, UsageError

NEVER = threading.Event()
NO_TOKENS = SpecialTokens("", "</s>", add_bos=False)


def chat_file(folder: Path, *conversations: object) -> Path:
    path = folder / "talk.jsonl"
    lines = (json.dumps(conversation) for conversation in conversations)
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def said(*pairs: tuple[str, str]) -> dict[str, object]:
    return {"messages": [{"role": role, "content": content} for role, content in pairs]}


@pytest.mark.parametrize("name", SHIPPED)
def test_each_shipped_corpus_can_be_opened_and_is_large_enough(name: str) -> None:
    corpus = open_corpus(name, smollm_path(), NEVER)
    assert corpus.kind == SHIPPED[name][0]
    assert corpus.parse_special == (corpus.kind == "chat")
    # A first run needs two chunks of 512 tokens; a token is at most some six characters here.
    assert len(corpus.text) > 2 * 512 * 6
    assert corpus.text.isprintable() or set(corpus.text) - {"\n", "\t"} == {
        char for char in corpus.text if char.isprintable()
    }


def test_a_text_is_what_llama_perplexity_would_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("ä\r\nb\n\n".encode())
    corpus = read_text(path)
    assert corpus.text == "ä\r\nb\n"
    assert corpus.sources[0].sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_special_tokens_in_a_plain_text_are_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("<|im_start|>")
    assert not read_text(path).parse_special


@pytest.mark.parametrize(
    ("data", "problem"),
    [(b"", "no text"), (b" \n\t", "no text"), (b"abc\xff", "byte 3 is not UTF-8")],
)
def test_what_holds_no_text_is_refused(tmp_path: Path, data: bytes, problem: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    with pytest.raises(CorpusInvalid, match=problem):
        read_text(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusInvalid, match=r"none\.txt"):
        open_corpus(str(tmp_path / "none.txt"), tmp_path, NEVER)


def test_a_file_s_ending_tells_its_kind() -> None:
    names = {"a.txt": "text", "wiki.test.raw": "text", "a.PY": "code", "a.rs": "code"}
    assert {name: kind_of(Path(name)) for name in names} == names
    assert kind_of(Path("a.jsonl")) == "chat"


def test_conversations_are_rendered_by_the_template_and_end_as_answers_do(tmp_path: Path) -> None:
    template = ChatTemplate(
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}|{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}",
        "<s>",
        "</s>",
    )
    path = chat_file(
        tmp_path,
        said(("user", "Hi"), ("assistant", "Ho")),
        said(("system", "Be kind"), ("user", "A\n"), ("assistant", " B ")),
    )
    first, second = "[user]Hi|[assistant]Ho</s>", "[system]Be kind|[user]A\n|[assistant] B </s>"

    by_hand = render_chat(path, template, SpecialTokens("<s>", "</s>", add_bos=False), "talk")
    assert by_hand.text == f"<s>{first}<s>{second}"
    # A tokeniser that adds the first token must not find it there.
    added = render_chat(path, template, SpecialTokens("<s>", "</s>", add_bos=True), "talk")
    assert added.text == f"{first}<s>{second}"
    assert added.parse_special


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 1 is not JSON"),
        ("[]", "no messages"),
        ('{"messages": []}', "no messages"),
        ('{"messages": [1]}', "without a known role"),
        ('{"messages": [{"role": "pirate", "content": "a"}]}', "without a known role"),
        ('{"messages": [{"role": "assistant", "content": 1}]}', "without text"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "does not end with"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_what_is_no_conversation_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(line)
    with pytest.raises(CorpusInvalid, match=problem):
        render_chat(path, ChatTemplate("x", "", ""), NO_TOKENS, "bad")


def test_a_vocabulary_that_llama_cpp_refuses_is_told_as_such(tmp_path: Path) -> None:
    base = write_random_gguf(tmp_path / "m.gguf", "llama", 1)
    data = bytearray(base.read_bytes())
    at = data.index(b"tokenizer.ggml.model") + len("tokenizer.ggml.model") + 4 + 8
    data[at : at + 4] = b"nope"
    base.write_bytes(data)
    with pytest.raises(EngineStartFailed, match=r"vocabulary of m\.gguf"):
        open_corpus("chat", base, NEVER)


def test_a_recipe_is_followed_without_its_archive_being_trusted(tmp_path: Path) -> None:
    recipe = find_recipe("wikitext-2-test")
    archive = tmp_path / "w.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("../../escape.txt", "no")
        file.writestr(recipe.member, "An article.\n")
    asked: list[tuple[str, str]] = []

    def download(repo: str, file: str) -> Path:
        asked.append((repo, file))
        return archive

    target = tmp_path / "out" / "wiki.txt"
    target.parent.mkdir()
    source = fetch(recipe, target, download)

    assert asked == [(recipe.repo, recipe.file)]
    assert target.read_text() == "An article.\n"
    assert source.sha256 == hashlib.sha256(b"An article.\n").hexdigest()
    assert [path.name for path in target.parent.iterdir()] == ["wiki.txt"]
    with pytest.raises(UsageError, match="exists already"):
        fetch(recipe, target, download)


def test_an_archive_without_the_wanted_file_leaves_nothing(tmp_path: Path) -> None:
    archive = tmp_path / "w.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("other.txt", "no")
    target = tmp_path / "wiki.txt"
    with pytest.raises(CorpusInvalid, match="cannot be taken out"):
        fetch(find_recipe("wikitext-2-test"), target, lambda repo, file: archive)
    assert not target.exists()
    assert not list(tmp_path.glob("*.part"))


def test_recipes_have_names_of_their_own() -> None:
    names = [recipe.name for recipe in read_recipes()]
    assert len(set(names)) == len(names)
    assert not set(names) & set(SHIPPED)
    with pytest.raises(UsageError, match="wikitext-2-test"):
        find_recipe("wikitext")
