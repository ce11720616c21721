"""The parser: every form is read, nothing is guessed, nothing but `InvalidEdit` is raised."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from veriloop_tui.errors import InvalidEdit
from veriloop_tui.proposer.edit import (
    Create,
    Define,
    Edit,
    Remove,
    Rename,
    Replace,
    Whole,
    parse_edits,
)

_BLOCK = "<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\n"
_EDIT = Replace("src/calc.py", ("old",), ("new",))


@pytest.mark.parametrize(
    "text",
    [
        f"src/calc.py\n{_BLOCK}",
        f"`src/calc.py`\n{_BLOCK}",
        f"**src/calc.py**\n{_BLOCK}",
        f"### `src/calc.py`\n{_BLOCK}",
        f"File: src/calc.py\n{_BLOCK}",
        f"src/calc.py:\n{_BLOCK}",
        f"```src/calc.py\n{_BLOCK}```",
        f"```python src/calc.py\n{_BLOCK}```",
        f"```python:src/calc.py\n{_BLOCK}```",
        f"src/calc.py\n```python\n{_BLOCK}```",
        f"```python\nsrc/calc.py\n{_BLOCK}```",
        f"The old one is wrong.\n\nsrc/calc.py\n~~~~\n{_BLOCK}~~~~\nDone.",
        f"src/calc.py\n{_BLOCK}".replace("\n", "\r\n"),
        "src/calc.py\n<<<<<<< SEARCH  \nold\n=======  \nnew\n>>>>>>> REPLACE ",
    ],
)
def test_a_search_replace_block_is_read_wherever_its_path_stands(text: str) -> None:
    assert parse_edits(text) == (_EDIT,)


def test_several_blocks_in_several_files_are_read_in_order() -> None:
    text = f"a.py\n{_BLOCK}and further down:\n\n{_BLOCK}\n`b.py`\n```\n{_BLOCK}```\n"
    read = parse_edits(text)
    assert [edit.path for edit in read if isinstance(edit, Replace)] == ["a.py", "a.py", "b.py"]


def test_a_word_right_above_a_block_is_its_path_and_not_the_file_before() -> None:
    read = parse_edits(f"a.py\n{_BLOCK}\nMakefile\n{_BLOCK}")
    assert [edit.path for edit in read if isinstance(edit, Replace)] == ["a.py", "Makefile"]


@pytest.mark.parametrize(
    ("text", "edit"),
    [
        ("a.py\n<<<<<<< SEARCH\n=======\nx = 1\n>>>>>>> REPLACE", Create("a.py", ("x = 1",))),
        ("a.py\n<<<<<<< SEARCH\n\n=======\n>>>>>>> REPLACE", Create("a.py", ())),
        ("a.py\n<<<<<<< DELETE\n>>>>>>> DELETE", Remove("a.py")),
        ("`a.py`\n<<<<<<< RENAME\nb/c.py\n>>>>>>> RENAME", Rename("a.py", "b/c.py")),
        ("a.py\n<<<<<<< RENAME\n`b.py`\n\n>>>>>>> RENAME", Rename("a.py", "b.py")),
        (
            "`notes.md`\n````\n# Hi\n```\ncode\n```\n````",
            Whole("notes.md", ("# Hi", "```", "code", "```")),
        ),
        ("```toml pyproject.toml\na = 1\n```", Whole("pyproject.toml", ("a = 1",))),
    ],
)
def test_each_other_form_is_read(text: str, edit: Edit) -> None:
    assert parse_edits(text) == (edit,)


def test_a_fenced_function_is_a_definition_and_its_usage_is_left_out() -> None:
    text = "Here:\n```python\nimport os\n\n@cache\ndef f(x):\n    return x\n\nprint(f(1))\n```\nBye"
    assert parse_edits(text) == (Define("f", "@cache\ndef f(x):\n    return x"),)


def test_a_fenced_class_and_a_function_are_two_definitions() -> None:
    text = "```python\nclass A:\n    def f(self):\n        return 1\n\ndef g():\n    pass\n```"
    assert [edit.name for edit in parse_edits(text) if isinstance(edit, Define)] == ["A", "g"]


def test_a_function_is_read_from_a_fence_that_never_ends() -> None:
    assert parse_edits("```python\ndef f(x):\n    return x + 1\n") == (
        Define("f", "def f(x):\n    return x + 1"),
    )


def test_a_function_that_breaks_off_keeps_its_whole_lines() -> None:
    assert parse_edits("```python\ndef f(x):\n    y = x\n    return (y +") == (
        Define("f", "def f(x):\n    y = x"),
    )


def test_prose_after_a_function_in_its_fence_is_left_out() -> None:
    assert parse_edits("```python\ndef f(x):\n    return x\n\nThis function returns x!\n") == (
        Define("f", "def f(x):\n    return x"),
    )


def test_an_indented_method_is_read_at_the_left_edge() -> None:
    text = "```python\n    def f(self):\n        return 1\n```"
    assert parse_edits(text) == (Define("f", "def f(self):\n    return 1"),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("I would rather not.", "holds no edit"),
        ("", "holds no edit"),
        ("```\n$ pytest\n```", "holds no edit"),
        (_BLOCK, "names no file"),
        (f"Change this line of prose:\n{_BLOCK}", "names no file"),
        ("a.py\n<<<<<<< SEARCH\nold\n=======\nnew", "has no '>>>>>>> REPLACE'"),
        (f"a.py\n<<<<<<< SEARCH\nold\n=======\n{_BLOCK}", "has no '>>>>>>> REPLACE'"),
        ("a.py\n<<<<<<< SEARCH\nold\n>>>>>>> REPLACE", "no '=======' line"),
        ("a.md\n<<<<<<< SEARCH\nT\n=======\n=======\nU\n>>>>>>> REPLACE", "more than one"),
        ("a.py\n<<<<<<< DELETE\nold\n>>>>>>> DELETE", "must be empty"),
        ("a.py\n<<<<<<< RENAME\nb.py\nc.py\n>>>>>>> RENAME", "one line, the new path"),
        ("`a.py`\n```python\nx = 1\n", "breaks off"),
        ("```python\ndef f(:\n    return\n```", "not valid Python"),
        ("a.py\n<<<<<<< SEARCH\n\ud800\n=======\n>>>>>>> REPLACE", "no file can hold"),
    ],
)
def test_what_cannot_be_read_with_certainty_is_invalid(text: str, problem: str) -> None:
    with pytest.raises(InvalidEdit, match=problem):
        parse_edits(text)


def test_code_with_a_doubtful_escape_is_read_and_warns_nobody() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        edits = parse_edits("```python\ndef f():\n    return '\\d'\n```")
    assert edits == (Define("f", "def f():\n    return '\\d'"),)
    assert not seen


_LINES = st.sampled_from(
    [
        "<<<<<<< SEARCH",
        "=======",
        ">>>>>>> REPLACE",
        "<<<<<<< DELETE",
        ">>>>>>> DELETE",
        "<<<<<<< RENAME",
        ">>>>>>> RENAME",
        "```",
        "````python a.py",
        "~~~",
        "a.py",
        "`b/c.py`",
        "",
        "def f(x):",
        "    return x",
        "@",
        "class A: pass",
        "async def g(): '''",
        "\\",
        "\x0c",
        "\x00",
    ]
)


@settings(max_examples=400)
@given(st.one_of(st.text(), st.lists(_LINES | st.text(max_size=12)).map("\n".join)))
@example("```\n" + "(" * 3000 + "\ndef f(): pass\n```")
@example("```\ndef f():\n    return '\\d'\n```")
def test_arbitrary_text_gives_edits_or_invalid_edit_and_nothing_else(text: str) -> None:
    try:
        edits = parse_edits(text)
    except InvalidEdit:
        return
    assert edits
