"""The workspace's own programs that a contract's commands start. Pure.

Whoever may edit such a program decides what it reports, so a proposal must not touch it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from veriloop_tui.core.obligation import Obligation

_INTERPRETER = re.compile(
    r"(?:ba|da|z|k|c|tc|fi)?sh|(?:python|pypy|lua)[\d.]*|node|nodejs|bun|ruby|perl|php|Rscript|julia"
    r"|pwsh|source|\."
)
_SCRIPT = re.compile(r".+\.(?:sh|bash|zsh|py|pyz|js|mjs|cjs|ts|rb|pl|php|lua|R|jl|ps1)")
_SHELL_SCRIPT = re.compile(r".+\.(?:sh|bash|zsh|ps1)")
_NO_SCRIPT = frozenset({"-m", "-c"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_SEPARATORS = frozenset(";&|()\n")
_NOT_LITERAL = re.compile(r"[$`*?\[\]{}\\\n]")


def scripts_of(obligation: Obligation) -> tuple[str, ...]:
    """Gitignore patterns of the programs and scripts by relative path that the command starts."""
    words = _words(obligation.run)
    # After a `cd` the path may be relative to any folder.
    start = "**/" if "cd" in words else "/"
    paths = (_relative(word) for word in _started(words))
    return tuple(dict.fromkeys(f"{start}{path}" for path in paths if path))


def _words(run: tuple[str, ...] | str) -> list[str]:
    """The words of the command, then those of lines that it hands on, as to `sh -c`."""
    words = list(run) if isinstance(run, tuple) else _split(run)
    handed_on = [part for word in words if " " in word for part in (";", *_split(word))]
    return [*words, *handed_on]


def _split(line: str) -> list[str]:
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    reader.commenters = ""
    try:
        return list(reader)
    except ValueError:  # an open quote: the shell refuses it too
        return line.split()


def _started(words: list[str]) -> Iterator[str]:
    at_start = True
    for index, word in enumerate(words):
        if set(word) <= _SEPARATORS:
            at_start = True
            continue
        if (at_start and "/" in word) or _SHELL_SCRIPT.fullmatch(word):
            yield word
        if _INTERPRETER.fullmatch(word.rpartition("/")[2]) or (at_start and word == "."):
            yield from _given(words[index + 1 :])
        at_start = at_start and _ASSIGNMENT.fullmatch(word) is not None


def _given(words: list[str]) -> Iterator[str]:
    """What an interpreter runs: its first operand, and the first that is named like a script."""
    seen = False
    for word in words:
        if word in _NO_SCRIPT or set(word) <= _SEPARATORS:
            return
        if word.startswith("-"):
            continue
        if _SCRIPT.fullmatch(word):
            yield word
            return
        if not seen:
            yield word
        seen = True


def _relative(word: str) -> str:
    parts = [part for part in word.split("/") if part not in ("", ".")]
    if word.startswith(("/", "~")) or ".." in parts or _NOT_LITERAL.search(word):
        return ""
    return "/".join(parts).rstrip()
