"""Which contracts the user has read and allowed to run, in one file per workspace.

The file is the caller's, outside the workspace, so that nothing a command or a model writes can
reach it. A file that is damaged, or that others may write, trusts nothing: the user is asked again.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from veriloop_tui.contract.protect import DEFAULT_PROTECTED
from veriloop_tui.core.obligation import Contract

_KEPT = 50


@dataclass(frozen=True, slots=True)
class _Trusted:
    """The trusted hashes, oldest first, and what the last of those contracts said."""

    hashes: tuple[str, ...] = ()
    said: tuple[str, ...] = field(default=())


def is_trusted(file: Path, contract: Contract) -> bool:
    """Whether the user has trusted exactly this contract."""
    return contract.contract_hash in _read(file).hashes


def has_trusted_before(file: Path) -> bool:
    """Whether the user has trusted any version of the contract."""
    return bool(_read(file).hashes)


def changes(file: Path, contract: Contract) -> tuple[str, ...]:
    """What to read before trusting: lines that begin with '+' (new), '-' (gone) or ' ' (as before).

    All lines are new where nothing was trusted before. Commands are shown whole, with everything
    that a terminal would not show made visible.
    """
    lines = difflib.ndiff(_read(file).said, describe(contract))
    return tuple(line for line in lines if not line.startswith("?"))


def trust(file: Path, contract: Contract) -> None:
    """Remember this contract as trusted. The file gets mode 0600. Raises `OSError`."""
    before = _read(file)
    wanted = contract.contract_hash
    hashes = (*(known for known in before.hashes if known != wanted), wanted)[-_KEPT:]
    content = {"version": 1, "hashes": hashes, "said": describe(contract)}
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # mkstemp makes the file with mode 0600.
    handle, name = tempfile.mkstemp(prefix=file.name, dir=file.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(content, out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        Path(name).replace(file)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def describe(contract: Contract) -> tuple[str, ...]:
    """The contract in lines for people: commands first."""
    lines = []
    for obligation in contract.obligations:
        if isinstance(obligation.run, str):
            lines.append(f"{obligation.name} runs in the shell: {_visible(obligation.run)}")
        else:
            lines.append(f"{obligation.name} runs: {_visible(shlex.join(obligation.run))}")
        confirmed = "improvements confirmed" if obligation.confirm else "improvements not confirmed"
        lines.append(
            f"{obligation.name}: report {obligation.report}, at most {obligation.timeout:g} s, "
            f"baseline measured {obligation.repeats} times, {confirmed}"
        )
    budget = contract.budget
    limits = {
        "attempts": budget.attempts,
        "tokens": budget.tokens,
        "seconds": budget.wall_time,
        "seconds of commands": budget.verifier_time,
        "bytes of store": budget.store_bytes,
    }
    shown = [f"{limit:,.12g} {unit}" for unit, limit in limits.items() if limit is not None]
    lines.append(f"budget: {', '.join(shown)}")
    own = [pattern for pattern in contract.protected if pattern not in DEFAULT_PROTECTED]
    lines += [f"also protected: {_visible(pattern)}" for pattern in own]
    return tuple(lines)


def _visible(text: str) -> str:
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode()
        for char in text
    )


def _read(file: Path) -> _Trusted:
    try:
        facts = file.stat(follow_symlinks=False)
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return _Trusted()
    foreign = facts.st_uid != os.getuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if foreign or not stat.S_ISREG(facts.st_mode) or not isinstance(content, dict):
        return _Trusted()
    return _Trusted(_texts(content.get("hashes")), _texts(content.get("said")))


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return ()
    return tuple(value)
