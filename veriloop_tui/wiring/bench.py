"""The benchmark of one model: a measuring process, and what it found."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from veriloop_tui import __version__
from veriloop_tui.bench.prompts import PROMPTS, SET
from veriloop_tui.bench.report import Difference, Sample, compare, document
from veriloop_tui.engine.gguf.facts import check_loadable, read_facts
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import EngineStartFailed, UsageError
from veriloop_tui.wiring.running import engine_settings
from veriloop_tui.wiring.workspace import Flags, locate

_ROOT = Path(__file__).parents[2]
_BOOT = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from veriloop_tui.engine.model.measure import main; sys.exit(main())"
)
_LAST_WORDS = 500


def run(
    flags: Flags, rounds: int, max_tokens: int, told: Callable[[Sample], None]
) -> dict[str, Any]:
    """Measure the model that `flags` name; the whole run as JSON.

    Raises `ModelNotFound`, `ModelFileInvalid`, `EngineStartFailed`.
    """
    load = engine_settings(locate(Path(), flags))
    check_loadable(read_facts(load.model))
    facts: dict[str, Any] = {}
    samples: list[Sample] = []
    for line in _lines(load, rounds, max_tokens):
        if "facts" in line:
            facts = line["facts"]
        else:
            sample = Sample(**{one.name: line[one.name] for one in fields(Sample)})
            samples.append(sample)
            told(sample)
    return {
        **document(_settings(load, facts, rounds, max_tokens), samples),
        "notices": facts["notices"],
    }


def against(path: Path, after: dict[str, Any]) -> tuple[Difference, ...]:
    """Compare a run with one that was written to `path`. Raises `UsageError`."""
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        return compare(before, after)
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}.") from problem
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise UsageError(f"{path} cannot be compared with this run: {problem}.") from problem


def _settings(
    load: LoadSettings, facts: dict[str, Any], rounds: int, max_tokens: int
) -> dict[str, Any]:
    """What two runs must share. The draft head counts by its presence: gains are what it is for."""
    chosen = {
        key: value
        for key, value in asdict(replace(load, model=Path(), draft=None, state_file=None)).items()
        if key not in ("model", "draft", "state_file")
    }
    return json.loads(  # type: ignore[no-any-return]
        json.dumps(
            {
                "prompt_set": SET,
                "rounds": rounds,
                "max_tokens": max_tokens,
                "program": __version__,
                "machine": f"{platform.system()} {platform.machine()}",
                "model": facts["name"],
                "file_size": facts["file_size"],
                "n_ctx": facts["n_ctx"],
                **{f"load.{key}": value for key, value in chosen.items()},
            }
        )
    )


def _lines(load: LoadSettings, rounds: int, max_tokens: int) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-P", "-c", _BOOT, str(_ROOT), "--load", load.to_json()]
    command += ["--rounds", str(rounds), "--max-tokens", str(max_tokens)]
    prompts = json.dumps([{"name": one.name, "text": one.text} for one in PROMPTS])
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            child.stdin.write(prompts)
            child.stdin.close()
            for line in child.stdout:
                yield json.loads(line)
            words = child.stderr.read()
            code = child.wait()
        finally:
            child.kill()
    if code != 0:
        raise EngineStartFailed(f"measuring ended with exit code {code}", words[-_LAST_WORDS:])
