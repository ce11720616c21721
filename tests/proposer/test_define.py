"""Replacing one definition in a Python file's bytes."""

from __future__ import annotations

import pytest

from veriloop_tui.errors import InvalidEdit
from veriloop_tui.proposer.define import replace_definition

MODULE = b'''\
"""A module."""
LIMIT = 3


class Basket:
    def __init__(self):
        self.items = []

    @property
    def total(self):
        """The sum."""
        return 0  # to be done


class Box:
    def __init__(self):
        self.lid = None


def add(a, b):
    """Add them."""
    return a - b


x = add(1, 2)
'''


def _replaced(name: str, source: str, wanted: str = "") -> str:
    return replace_definition(MODULE, "m.py", name, source, wanted).decode()


def test_only_the_body_changes_where_the_head_is_repeated() -> None:
    new = _replaced("add", 'def add(a, b):\n  """Add them."""\n  return a + b')
    assert new == MODULE.decode().replace("return a - b", "return a + b")


def test_a_method_gets_the_depth_and_the_decorators_that_it_has_in_the_file() -> None:
    new = _replaced("total", "def total(self):\n    if self.items:\n        return 1\n    return 2")
    assert (
        "    @property\n    def total(self):\n        if self.items:\n            return 1\n"
        "        return 2\n\n\nclass Box"
    ) in new


def test_the_name_that_the_prompt_asked_for_settles_which_method_is_meant() -> None:
    source = "def __init__(self):\n    self.lid = 1"
    assert "self.lid = 1" in _replaced("__init__", source, "Box.__init__")
    with pytest.raises(InvalidEdit, match="'__init__' 2 times"):
        _replaced("__init__", source)


def test_a_changed_signature_is_taken() -> None:
    assert "def add(a, b=0):\n    return a" in _replaced("add", "def add(a, b=0):\n    return a")


def test_a_class_is_replaced_whole() -> None:
    assert "class Box:\n    pass\n\n\ndef add" in _replaced("Box", "class Box:\n    pass")


def test_tabs_crlf_and_a_missing_final_newline_of_the_file_are_kept() -> None:
    content = b"# \xe9\r\ndef f(x):\r\n\t'''Doc.'''\r\n\treturn x"
    content = b"# coding: latin-1\r\n" + content
    source = "def f(x):\n    '''Doc.'''\n    if x:\n        return 1\n    return 2"
    assert replace_definition(content, "m.py", "f", source, "f") == (
        b"# coding: latin-1\r\n# \xe9\r\ndef f(x):\r\n\t'''Doc.'''\r\n"
        b"\tif x:\r\n\t    return 1\r\n\treturn 2"
    )


def test_a_function_on_one_line_is_replaced_whole() -> None:
    content = b"def f(x): return x\ndef g(): '''Doc.'''; return 1\n"
    once = replace_definition(content, "m.py", "f", "def f(x):\n    return 2", "f")
    assert once == b"def f(x):\n    return 2\ndef g(): '''Doc.'''; return 1\n"
    twice = replace_definition(once, "m.py", "g", "def g():\n    '''Doc.'''\n    return 3", "g")
    assert twice.endswith(b"def g():\n    '''Doc.'''\n    return 3\n")


def test_a_file_that_is_not_python_is_invalid() -> None:
    with pytest.raises(InvalidEdit, match="not valid Python"):
        replace_definition(b"def f(:\n", "m.py", "f", "def f(): pass", "f")
