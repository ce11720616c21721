"""A report as JSON, to be made into pages again later, or read by other programs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from quant.report.data import Report
from veriloop_tui.core.canonical import Json, to_json
from veriloop_tui.errors import UsageError

_FORMAT: Final = "veriloop-quant-report"
_VERSION: Final = 1
_MAX_BYTES: Final = 256 << 20


def dump(report: Report) -> str:
    """The report without its tasks, which have a file of their own.

    JSON has no word for what is infinite or not a number; such values are the texts `inf`, `-inf`
    and `nan`, which `load` takes for numbers again.
    """
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "report": _finite(to_json(replace(report, tasks=()))),
    }
    return json.dumps(document, allow_nan=False, ensure_ascii=False, indent=1) + "\n"


def _finite(value: Json) -> Json:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case list():
            return [_finite(one) for one in value]
        case dict():
            return {key: _finite(one) for key, one in value.items()}
        case _:
            return value


def load(path: Path) -> Report:
    """The report in a file. Raises `UsageError`."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise UsageError(f"{path} is larger than 256 MiB, which no report is.")
        document: Any = json.loads(data)
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}.") from problem
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is no report: it is not JSON.") from None
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise UsageError(f"{path} is no report; `veriloop quant compare` writes them.")
    if document.get("version") != _VERSION:
        raise UsageError(f"{path} was written by another version; measure again with this one.")
    try:
        return TypeAdapter(Report).validate_python(document.get("report"))
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{path} is damaged at {where}: {first['msg']}.") from None
