"""The text of `veriloop.toml` to a `Contract`. Pure, but for `load_contract`."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import NoReturn, get_args

from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore import GitIgnorePatternError

from veriloop_tui.contract.protect import DEFAULT_PROTECTED, matches, protects
from veriloop_tui.contract.scripts import scripts_of
from veriloop_tui.contract.toml_lines import key_lines, line_of
from veriloop_tui.contract.toml_table import Table
from veriloop_tui.core.excerpt import one_line
from veriloop_tui.core.obligation import BudgetLimits, Contract, Obligation, ReportKind
from veriloop_tui.errors import ContractError

__all__ = ["CONTRACT_FILE", "REPORT_PLACE", "load_contract", "parse_contract", "protects"]

CONTRACT_FILE = "veriloop.toml"
REPORT_PLACE = "{report}"
MAX_BYTES = 256_000
VERSION = 1

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}")
_AT_LINE = re.compile(r" ?\(at line (\d+), column \d+\)")
_AT_END = " (at end of document)"
_MAX_REPEATS = 20
_MAX_COUNT = 10**15


def load_contract(workspace: Path) -> Contract:
    """The contract in the workspace's folder. Raises `ContractError`."""
    path = workspace / CONTRACT_FILE
    try:
        # A pipe in its place must not make us wait for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        problem = "there is no contract here; `veriloop init` writes one"
        raise ContractError(CONTRACT_FILE, 0, "", problem) from None
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise ContractError(CONTRACT_FILE, 0, "", problem) from error
    return parse_contract(content)


def parse_contract(content: bytes, path: str = CONTRACT_FILE) -> Contract:
    """The contract that the bytes of a `veriloop.toml` declare.

    Raises `ContractError` with line and key for anything that is not exactly as documented.
    """
    text = _decode(content, path)
    document = _parse_toml(text, path)
    lines = key_lines(text)

    def fail(at: tuple[str | int, ...], key: str, problem: str) -> NoReturn:
        raise ContractError(path, line_of(lines, at), key, problem)

    root = Table(document, (), "", fail)
    if root.get("version") is None:
        root.fail("version", f"is missing; begin the file with `version = {VERSION}`")
    root.count("version", VERSION)
    obligations = _obligations(root)
    contract = Contract(
        obligations=obligations,
        protected=_protected(root.table("protect"), obligations),
        budget=_budget(root.table("budget")),
    )
    root.end()
    return contract


def _decode(content: bytes, path: str) -> str:
    if len(content) > MAX_BYTES:
        raise ContractError(path, 0, "", f"the file is larger than {MAX_BYTES} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ContractError(path, line, "", "the file is not UTF-8") from error


def _parse_toml(text: str, path: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ContractError(path, 0, "", "values are nested too deeply") from error
    except ValueError as error:
        message = str(error)
        found = _AT_LINE.search(message)
        last = text.rstrip().count("\n") + 1
        line = int(found[1]) if found else last if message.endswith(_AT_END) else 0
        problem = _AT_LINE.sub("", message).removesuffix(_AT_END)
        raise ContractError(path, line, "", f"not valid TOML: {one_line(problem, 200)}") from error


def _budget(table: Table) -> BudgetLimits:
    usual = BudgetLimits()
    limits = BudgetLimits(
        attempts=table.count("attempts", _MAX_COUNT) or usual.attempts,
        tokens=table.count("tokens", _MAX_COUNT) or usual.tokens,
        wall_time=table.seconds("wall_time") or usual.wall_time,
        verifier_time=table.seconds("verifier_time") or usual.verifier_time,
        store_bytes=table.count("store_bytes", _MAX_COUNT) or usual.store_bytes,
    )
    table.end()
    return limits


def _protected(table: Table, obligations: tuple[Obligation, ...]) -> tuple[str, ...]:
    """What is always protected, what the user adds, and what the commands start."""
    added = table.texts("paths") or ()
    for pattern in added:
        if pattern.startswith("!"):
            table.fail("paths", f"{pattern!r}: protection cannot be taken away")
        if not pattern.strip() or pattern.startswith("#") or "\n" in pattern:
            table.fail("paths", f"{one_line(repr(pattern), 80)} is not a gitignore pattern")
        try:
            GitIgnoreSpec.from_lines([pattern])
        except GitIgnorePatternError:
            table.fail("paths", f"{one_line(repr(pattern), 80)} is not a gitignore pattern")
    table.end()
    protected = (*DEFAULT_PROTECTED, *added)
    started = [
        pattern
        for obligation in obligations
        for pattern in scripts_of(obligation)
        if not matches(protected, pattern.removeprefix("**").removeprefix("/"))
    ]
    return tuple(dict.fromkeys((*protected, *started)))


def _obligations(root: Table) -> tuple[Obligation, ...]:
    tables = root.tables("obligation")
    if not tables:
        root.fail("obligation", "the contract demands nothing; add an [[obligation]]")
    names: set[str] = set()
    obligations = []
    for table in tables:
        obligation = _obligation(table)
        if obligation.name in names:
            table.fail("name", f"'{obligation.name}' is used by an earlier obligation")
        names.add(obligation.name)
        obligations.append(obligation)
    return tuple(obligations)


def _obligation(table: Table) -> Obligation:
    name = table.text("name")
    if not _NAME.fullmatch(name):
        table.fail(
            "name", "use up to 60 letters, digits, '.', '_' and '-', a letter or digit first"
        )
    run = _run(table)
    report = _report(table, run)
    usual = Obligation(name, run, report)
    obligation = Obligation(
        name=name,
        run=run,
        report=report,
        timeout=table.seconds("timeout") or usual.timeout,
        repeats=table.count("repeats", _MAX_REPEATS) or usual.repeats,
        confirm=table.flag("confirm", usual.confirm),
    )
    table.end()
    return obligation


def _run(table: Table) -> tuple[str, ...] | str:
    value = table.get("run")
    if isinstance(value, str):
        if not value.strip() or "\0" in value:
            table.fail("run", "the command is empty")
        return value
    words = table.texts("run")
    if not words or not words[0].strip() or any("\0" in word for word in words):
        table.fail("run", "give the command as a list of words, or as one shell line in quotes")
    return words


def _report(table: Table, run: tuple[str, ...] | str) -> ReportKind:
    value = table.text("report")
    kinds: tuple[ReportKind, ...] = get_args(ReportKind)
    kind = next((kind for kind in kinds if kind == value), None)
    if kind is None:
        table.fail("report", f"{one_line(repr(value), 40)} is not one of {', '.join(kinds)}")
    has_place = any(REPORT_PLACE in word for word in ((run,) if isinstance(run, str) else run))
    if kind == "junit" and not has_place:
        table.fail("run", f"a junit report needs {REPORT_PLACE} where the report's path goes")
    if kind == "exit" and has_place:
        table.fail("report", f"the command has {REPORT_PLACE}, so the report is junit, not exit")
    return kind
