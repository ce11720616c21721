"""The form for tiny models: one function, its body hidden or shown, the answer already begun.

Measured with a model of 135M parameters: a shown bug is copied, a hidden one is not; but some
bodies are nearly right, and showing them helps. So attempts alternate. The text of the failing
assertion did not help.
"""

from __future__ import annotations

import ast
import textwrap

from veriloop_tui.core.chat import Message
from veriloop_tui.proposer.form import Form
from veriloop_tui.proposer.prompt import Prompt, fenced
from veriloop_tui.proposer.source import (
    Definition,
    all_definitions,
    head_of,
    parse_python,
    split_lines,
)
from veriloop_tui.proposer.target import Target

ANSWER_TOKENS = 256
_SHORT = 600
_SYSTEM = "You are a careful Python programmer. You write correct, simple code."
_STOP = ("```", "\ndef ", "\nclass ", "\n#", "\nprint", "\nassert ", "\nif __name__", "\n@")


def function_prompt(target: Target, content: bytes, show_body: bool, max_tokens: int) -> Prompt:
    """Ask for one function of the file that holds `content`."""
    lines = split_lines(content)
    found = target.definition
    head = textwrap.dedent(head_of(found, lines))
    whole = textwrap.dedent(_text(lines, found.start, found.stop)).rstrip()
    parts = [*_surroundings(content, found, lines)]
    if show_body:
        parts.append(f"This Python function has a bug. Rewrite it correctly.\n\n{_code(whole)}")
    else:
        parts.append(f"Write the body of this Python function.\n\n{_code(head)}")
    prefill = f"```python\n{head}"
    return Prompt(
        form=Form.FUNCTION,
        target=str(target),
        messages=(
            Message("system", _SYSTEM),
            Message("user", "\n\n".join(parts)),
            Message("assistant", prefill),
        ),
        max_tokens=min(ANSWER_TOKENS, max_tokens),
        prefill=prefill,
        stop=_STOP,
        named=target.path,
        qualname=found.qualname,
    )


def _surroundings(content: bytes, found: Definition, lines: list[bytes]) -> list[str]:
    """What the function may refer to, where it is short: imports, constants, its class."""
    module = parse_python(content)
    parts: list[str] = []
    if module is None:
        return parts
    statements = [
        _text(lines, node.lineno - 1, node.end_lineno or node.lineno)
        for node in module.body
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign)
    ]
    if statements and sum(map(len, statements)) <= _SHORT:
        parts.append(f"The module begins like this:\n\n{_code(''.join(statements))}")
    owner = found.qualname.rpartition(".")[0]
    for other in all_definitions(module):
        if owner and other.qualname == owner:
            members = [
                other,
                *(d for d in all_definitions(module) if d.qualname == f"{owner}.__init__"),
            ]
            shown = "\n".join(_member(member, lines, found) for member in members)
            if len(shown) <= _SHORT:
                parts.append(f"It is a method of this class:\n\n{_code(shown)}")
    return parts


def _member(member: Definition, lines: list[bytes], asked: Definition) -> str:
    if isinstance(member.node, ast.ClassDef) or member.qualname == asked.qualname:
        return head_of(member, lines)
    return _text(lines, member.start, member.stop).rstrip()


def _text(lines: list[bytes], start: int, stop: int) -> str:
    text = b"".join(lines[start:stop]).decode("utf-8", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _code(text: str) -> str:
    return fenced(text, "python")
