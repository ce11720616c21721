"""Bounds for the code of a chat template: it comes with a model file, from a stranger.

The sandbox keeps it from reaching anything; here it is kept from never ending and from filling
the memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import jinja2
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

# A conversation of ten thousand messages takes less than a tenth of it in the longest template
# that llama.cpp ships; a machine takes some seconds for all.
MAX_STEPS: Final = 5_000_000
MAX_CHARACTERS: Final = 64 << 20
_MAX_NUMBER: Final = 1_000_000
_CODE: Final = "<template>"

_Local = Callable[[FrameType, str, Any], Any]


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox in which no single operation makes a huge value."""

    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Multiply or raise to a power, unless that repeats a text or grows a number too far."""
        if operator == "**" and (abs(left) > _MAX_NUMBER or abs(right) > 64):
            raise jinja2.TemplateError("its code computes too large a number")
        if operator == "*":
            for sequence, times in ((left, right), (right, left)):
                if isinstance(sequence, str | list | tuple) and (
                    len(sequence) * max(0, times) > _MAX_NUMBER
                ):
                    raise jinja2.TemplateError("its code repeats a value too often")
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call what the sandbox allows, unless a number would make it take forever."""
        for value in (*args, *kwargs.values()):
            if isinstance(value, int) and abs(value) > _MAX_NUMBER:
                raise jinja2.TemplateError("its code calls something with too large a number")
        return super().call(__context, __obj, *args, **kwargs)


def joined(pieces: Iterable[str]) -> str:
    """What a template writes, as one text, within the bounds. Raises `jinja2.TemplateError`."""
    written: list[str] = []
    size = 0
    with _counted_steps():
        for piece in pieces:
            size += len(piece)
            if size > MAX_CHARACTERS:
                raise jinja2.TemplateError(f"it writes more than {MAX_CHARACTERS} characters")
            written.append(piece)
    return "".join(written)


@contextmanager
def _counted_steps() -> Iterator[None]:
    """Count the lines of template code that this thread runs, and stop at the bound.

    A tracer, since a loop that writes nothing gives no other chance to look.
    """
    left = MAX_STEPS

    def step(_frame: FrameType, _event: str, _argument: Any) -> _Local:
        nonlocal left
        left -= 1
        if left < 0:
            raise jinja2.TemplateError("its code does not come to an end")
        return step

    def enter(frame: FrameType, _event: str, _argument: Any) -> _Local | None:
        return step if frame.f_code.co_filename == _CODE else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)
