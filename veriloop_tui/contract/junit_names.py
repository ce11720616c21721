"""Names of tests and of the files they come from, from a testcase's attributes.

A file must get the same name whether its import fails (one error testcase for the whole file) or
not (one testcase per test), in both of pytest's JUnit families. The `file` attribute alone will
not do: for an inherited or wrapped test it names the file where the function was written.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from veriloop_tui.core.excerpt import one_line

NAME_LIMIT = 400
_ADDRESS = re.compile(r"(?<= at )0x[0-9a-fA-F]+")


def dotted(path: str) -> str:
    """A file's path the way pytest writes it into `classname`."""
    return path.replace("\\", "/").removesuffix(".py").replace("/", ".")


def files_by_module(files: Iterable[str]) -> dict[str, str]:
    """Dotted module to path, for every file that a report names."""
    return {dotted(file): file.replace("\\", "/") for file in files if file}


def locate(name: str, files: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The file that a dotted name lies in, empty if it names none, and the classes behind it.

    `files` are the known modules; where none matches, the name is read by pytest's conventions:
    modules are `test_*` or `*_test`, classes begin with a capital.
    """
    parts = tuple(name.split("."))
    for end in range(len(parts), 0, -1):
        if known := files.get(".".join(parts[:end])):
            return known, parts[end:]
    if "/" in name:
        return name, ()
    for end in range(len(parts), 0, -1):
        if _is_test_module(parts[end - 1]):
            return "/".join(parts[:end]) + ".py", parts[end:]
    end = len(parts)
    while end and parts[end - 1][:1].isupper():
        end -= 1
    if not all(part.isidentifier() for part in parts[:end]):
        return "", parts
    return "/".join(parts[:end]), parts[end:]


def folders(file: str) -> tuple[str, ...]:
    """The folders above a file, which a runner may fail to collect as a whole."""
    return tuple(str(parent) for parent in PurePosixPath(file).parents if parent.name)


def bounded(name: str) -> str:
    """A harmless name of bounded length; different names stay different."""
    shown = one_line(name, NAME_LIMIT)
    if shown == name:
        return name
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{shown}#{mark}"


def steady(name: str, taken: dict[str, dict[str, int]]) -> str:
    """`name` without memory addresses, which differ from run to run, as `<f at 0x7f12>` has them.

    Names of one report that differ in nothing else are numbered in the order of their appearance;
    `taken` holds those so far.
    """
    plain = _ADDRESS.sub("0x", name)
    if plain == name:
        return name
    same = taken.setdefault(plain, {})
    number = same.setdefault(name, len(same) + 1)
    return plain if number == 1 else f"{plain} #{number}"


def _is_test_module(part: str) -> bool:
    return part[:1].islower() and (part.startswith("test_") or part.endswith("_test"))
