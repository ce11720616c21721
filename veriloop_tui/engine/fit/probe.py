"""Questions to llama.cpp that a child process answers: which devices there are, what a plan takes.

A header that llama.cpp aborts on ends the child, never this process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from veriloop_tui.engine.fit.memory import Device, state_size
from veriloop_tui.engine.fit.plan import Fit, loaded_by, measured
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import EngineStartFailed

_SECONDS: Final = 120.0
_LAST_WORDS: Final = 500
_ROOT: Final = Path(__file__).parents[3]
# As in `engine.process`: modules of the working directory are not to be found.
_BOOT: Final = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from veriloop_tui.engine.fit.reserve import main; sys.exit(main())"
)


def devices(wanted: tuple[str, ...] = ()) -> tuple[Device, ...]:
    """The machine's memory, then each GPU that llama.cpp has, or those that are `wanted`.

    Raises `EngineStartFailed`.
    """
    answer = _ask({"load": None, "devices": wanted})
    return tuple(Device(**one) for one in answer["devices"])


def confirmed(fit: Fit, wanted: LoadSettings) -> Fit:
    """The same fit with the figures that llama.cpp itself comes to for this machine.

    Without weights: the files need the right length and header only. But llama.cpp really makes
    room for recurrent states, so where those alone do not fit, the fit stays as it is. Raises
    `EngineStartFailed` where llama.cpp refuses the model or the plan.
    """
    if state_size(fit.facts, fit.plan) > fit.devices[0].free // 2:
        return fit
    asked = {
        "load": loaded_by(fit, wanted).to_json(),
        "plan": asdict(fit.plan),
        "own_head": fit.has_head and fit.draft is None,
    }
    answer = _ask(asked)
    if "problem" in answer:
        raise EngineStartFailed(answer["problem"].rstrip("."), "")
    return measured(fit, answer["compute"], answer["context"])


def _ask(question: Mapping[str, Any]) -> Any:
    command = [sys.executable, "-P", "-c", _BOOT, str(_ROOT)]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(question).encode(),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise EngineStartFailed(str(problem), "") from problem
    said = done.stderr.decode("utf-8", "replace")[-_LAST_WORDS:]
    log = "".join(char if char.isprintable() else " " for char in said).strip()
    if done.returncode != 0:
        raise EngineStartFailed(f"llama.cpp ended with code {done.returncode}", log)
    try:
        return json.loads(done.stdout)
    except ValueError as problem:
        raise EngineStartFailed("llama.cpp gave no figures", log) from problem
