"""`veriloop.toml`: what is read, and that everything else names line and key."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.contract.protect import DEFAULT_PROTECTED, protects
from veriloop_tui.contract.schema import MAX_BYTES, load_contract, parse_contract
from veriloop_tui.contract.toml_lines import key_lines
from veriloop_tui.core.obligation import BudgetLimits, Contract, Obligation
from veriloop_tui.errors import ContractError

WHOLE = """\
version = 1

[budget]
attempts = 40
tokens = 100000
wall_time = "1h30m"
verifier_time = "90s"
store_bytes = 5000000

[protect]
paths = ["docs/", "*.sql"]

[[obligation]]
name = "tests"
run = ["python3", "-m", "pytest", "--junitxml={report}"]
report = "junit"
timeout = "2m"
repeats = 3
confirm = false

[[obligation]]
name = "lint"
run = "ruff check . && echo fine"
report = "exit"
"""


def parse(text: str) -> Contract:
    return parse_contract(text.encode())


def obligation(**fields: str) -> str:
    values = {"name": '"tests"', "run": '["true"]', "report": '"exit"', **fields}
    body = "".join(f"{key} = {value}\n" for key, value in values.items() if value)
    return f"[[obligation]]\n{body}"


def test_a_whole_contract_is_read_as_written() -> None:
    contract = parse(WHOLE)
    assert contract.budget == BudgetLimits(40, 100_000, 5400.0, 90.0, 5_000_000)
    assert contract.obligations == (
        Obligation(
            "tests",
            ("python3", "-m", "pytest", "--junitxml={report}"),
            "junit",
            timeout=120.0,
            repeats=3,
            confirm=False,
        ),
        Obligation("lint", "ruff check . && echo fine", "exit"),
    )
    assert contract.protected == (*DEFAULT_PROTECTED, "docs/", "*.sql")


def test_what_is_left_out_has_the_documented_default() -> None:
    contract = parse("version = 1\n" + obligation())
    assert contract.budget == BudgetLimits()
    assert contract.obligations == (Obligation("tests", ("true",), "exit"),)


def test_dotted_and_inline_forms_mean_the_same() -> None:
    inline = (
        'version = 1\nbudget.attempts = 3\nprotect = { paths = ["x"] }\n'
        'obligation = [{ name = "tests", run = ["true"], report = "exit" }]\n'
    )
    plain = 'version = 1\n[budget]\nattempts = 3\n[protect]\npaths = ["x"]\n' + obligation()
    assert parse(inline) == parse(plain)


BROKEN = {
    "no version": (obligation(), 0, "version"),
    "another version": ("version = 2\n" + obligation(), 1, "version"),
    "version as a truth value": ("version = true\n" + obligation(), 1, "version"),
    "nothing demanded": ("version = 1\n", 0, "obligation"),
    "an empty list": ("version = 1\nobligation = []\n", 2, "obligation"),
    "one bracket": ("version = 1\n[obligation]\nname = 'x'\n", 2, "obligation"),
    "unknown at the root": ("version = 1\ncolour = 1\n" + obligation(), 2, "colour"),
    "unknown in the budget": (
        "version = 1\n[budget]\n\natempts = 1\n" + obligation(),
        4,
        "budget.atempts",
    ),
    "unknown in the second obligation": (
        "version = 1\n" + obligation() + "\n" + obligation(name='"b"', timout='"1s"'),
        11,
        "obligation[2].timout",
    ),
    "a missing key": ("version = 1\n" + obligation(run=""), 2, "obligation[1].run"),
    "a repeated name": ("version = 1\n" + obligation() + obligation(), 7, "obligation[2].name"),
    "a name with a blank": ("version = 1\n" + obligation(name='"a b"'), 3, "obligation[1].name"),
    "an empty command": ("version = 1\n" + obligation(run='"  "'), 4, "obligation[1].run"),
    "an empty argv": ("version = 1\n" + obligation(run="[]"), 4, "obligation[1].run"),
    "a number in the argv": (
        "version = 1\n" + obligation(run='[\n  "true",\n  # why\n  3,\n]'),
        7,
        "obligation[1].run[2]",
    ),
    "an unknown report": ("version = 1\n" + obligation(report='"xml"'), 5, "obligation[1].report"),
    "junit without a place": (
        "version = 1\n" + obligation(report='"junit"'),
        4,
        "obligation[1].run",
    ),
    "exit with a place": (
        "version = 1\n" + obligation(run='"x {report}"'),
        5,
        "obligation[1].report",
    ),
    "a timeout as a number": (
        "version = 1\n" + obligation(timeout="5"),
        6,
        "obligation[1].timeout",
    ),
    "a timeout in words": (
        "version = 1\n" + obligation(timeout='"5 min"'),
        6,
        "obligation[1].timeout",
    ),
    "an empty timeout": ("version = 1\n" + obligation(timeout='""'), 6, "obligation[1].timeout"),
    "no time at all": ("version = 1\n" + obligation(timeout='"0s"'), 6, "obligation[1].timeout"),
    "no repeats": ("version = 1\n" + obligation(repeats="0"), 6, "obligation[1].repeats"),
    "confirm as a word": (
        "version = 1\n" + obligation(confirm='"yes"'),
        6,
        "obligation[1].confirm",
    ),
    "negative attempts": (
        "version = 1\nbudget.attempts = -1\n" + obligation(),
        2,
        "budget.attempts",
    ),
    "a budget that is no table": ("version = 1\nbudget = 3\n" + obligation(), 2, "budget"),
    "a lifted protection": (
        'version = 1\n[protect]\npaths = ["!tests/"]\n' + obligation(),
        3,
        "protect.paths",
    ),
    "an impossible pattern": (
        'version = 1\n[protect]\npaths = ["!"]\n' + obligation(),
        3,
        "protect.paths",
    ),
    "keys inside a string": (
        'version = 1\n[budget]\nx = """\n[protect]\ny = 1\n"""\n' + obligation(),
        3,
        "budget.x",
    ),
    "inline tables over lines": (
        'version = 1\nobligation = [\n  { name = "a", run = ["true"], report = "exit" },\n'
        '  { name = "b", run = ["true"], report = "exit", timeot = "1s" },\n]\n',
        4,
        "obligation[2].timeot",
    ),
    "not TOML": ("version = 1\n\nname = = 3\n", 3, ""),
    "a key twice": ("version = 1\nversion = 1\n", 2, ""),
    "an unfinished string": ('version = 1\nname = """abc\n\n', 2, ""),
    "a huge number": ("version = " + "1" * 5000, 0, ""),
    "depth": ("version = " + "[" * 50_000, 0, ""),
}


@pytest.mark.parametrize(("text", "line", "key"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_contract_names_line_and_key(text: str, line: int, key: str) -> None:
    with pytest.raises(ContractError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.key) == (line, key)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_a_misspelt_key_is_answered_with_the_right_one() -> None:
    with pytest.raises(ContractError, match="did you mean 'timeout'"):
        parse("version = 1\n" + obligation(timout='"1s"'))


def test_bytes_that_are_no_text_name_their_line() -> None:
    with pytest.raises(ContractError, match="UTF-8") as caught:
        parse_contract(b"version = 1\n# \xff\n")
    assert caught.value.line == 2


def test_a_huge_file_is_refused_unread() -> None:
    with pytest.raises(ContractError, match="larger"):
        parse_contract(b"#" * (MAX_BYTES + 1))


def test_a_missing_file_names_the_command_that_writes_it(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="veriloop init"):
        load_contract(tmp_path)


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "veriloop.toml")
    with pytest.raises(ContractError, match="version"):
        load_contract(tmp_path)


def test_the_hash_follows_every_word_of_the_contract() -> None:
    hashes = {
        parse(WHOLE).contract_hash,
        parse(WHOLE.replace("2m", "3m")).contract_hash,
        parse(WHOLE.replace("docs/", "doc/")).contract_hash,
        parse(WHOLE.replace("echo fine", "echo Fine")).contract_hash,
    }
    assert len(hashes) == 4
    assert parse(WHOLE + "# a comment\n").contract_hash == parse(WHOLE).contract_hash


@pytest.mark.parametrize(
    "path",
    [
        "tests/data/x.json",
        "pkg/tests/helper.py",
        "src/pkg/test_a.py",
        "a_test.py",
        "conftest.py",
        "deep/down/Conftest.PY",
        "VERILOOP.TOML",
        "pytest.ini",
        "pyproject.toml",
        "setup.cfg",
        ".github/workflows/ci.yml",
        ".gitlab-ci.yml",
        ".git/hooks/pre-commit",
        "uv.lock",
        "sitecustomize.py",
        "sub/usercustomize.py",
        "x.pth",
        "pytest.py",
        "_pytest/x.py",
        "pluggy/__init__.py",
        "src/pytest.py",
        "pytest_cov/plugin.py",
        "_hypothesis_pytestplugin.py",
        ".venv/lib/python3.11/site-packages/pytest/__init__.py",
        "plug.egg-info/entry_points.txt",
        "__pycache__/mod.cpython-311.pyc",
        "docs/guide.md",
    ],
)
def test_protected_paths(path: str) -> None:
    assert protects(parse(WHOLE), path)


@pytest.mark.parametrize(
    "path",
    [
        "src/pkg/mod.py",
        "main.py",
        "contest.py",
        "README.md",
        "a/latest.py",
        "pkg/py.py",
        "packaging/x",
    ],
)
def test_unprotected_paths(path: str) -> None:
    assert not protects(parse(WHOLE), path)


@pytest.mark.parametrize(
    ("run", "path"),
    [
        ('["sh", "check.sh"]', "check.sh"),
        ('"sh ./scripts/check.sh"', "scripts/check.sh"),
        ('"true && ./run"', "run"),
        ('["ci/go", "fast"]', "ci/go"),
        ('"python -W error tools/check.py"', "tools/check.py"),
        ('"A=1 python3.12 app.py | diff - want"', "app.py"),
        ('["bash", "-c", "./x && node a.js"]', "a.js"),
        ('"cd sub && ./check"', "sub/check"),
        ('". ./env && true"', "env"),
        ('"timeout 9 checks/all.sh"', "checks/all.sh"),
        ("\"sh -c './a b'\"", "a"),
    ],
)
def test_the_programs_that_a_command_starts_are_protected(run: str, path: str) -> None:
    contract = parse(f'version = 1\n[[obligation]]\nname = "t"\nrun = {run}\nreport = "exit"\n')
    assert protects(contract, path)


@pytest.mark.parametrize(
    "run", ['["ruff", "check", "src/a.py"]', '"python -m mypy src/a.py"', '"cat src/a.py | wc -l"']
)
def test_what_a_command_only_looks_at_may_be_changed(run: str) -> None:
    contract = parse(f'version = 1\n[[obligation]]\nname = "t"\nrun = {run}\nreport = "exit"\n')
    assert contract.protected == DEFAULT_PROTECTED


KEYS = st.sampled_from(["a", "b", "c-d", "e_1"])
VALUES = st.recursive(
    st.one_of(
        st.integers(-9, 99),
        st.booleans(),
        st.text("ab#=[]{}'\\\"\n ,", max_size=8),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)


def render(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            if "'''" not in value and not value.endswith("'") and "\n" in value:
                return f"'''\n{value}'''"
            escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            return f'"{escaped}"'
        case list():
            return "[" + "".join(f" # ]\n {render(item)} ," for item in value) + "\n]"
        case dict():
            return "{" + ", ".join(f"{k} = {render(v)}" for k, v in value.items()) + "}"
        case _:
            raise AssertionError


def paths(value: object, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    pairs: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    for key, item in pairs:
        yield (*at, key)
        yield from paths(item, (*at, key))


@given(
    st.dictionaries(KEYS, VALUES, max_size=4), st.lists(st.dictionaries(KEYS, VALUES), max_size=3)
)
def test_the_line_scan_finds_exactly_the_keys_that_the_parser_finds(
    top: dict[str, object], rows: list[dict[str, object]]
) -> None:
    text = "".join(f"{key} = {render(value)}\n" for key, value in top.items())
    text += "".join(
        "\n[[row]]\n" + "".join(f"{key} = {render(value)}\n" for key, value in row.items())
        for row in rows
    )
    lines = key_lines(text)
    assert set(lines) == set(paths(tomllib.loads(text)))
    starts = text.split("\n")
    for path, line in lines.items():
        if isinstance(path[-1], str) and len(path) == 1 and path[0] != "row":
            assert starts[line - 1].startswith(f"{path[-1]} =")
        if len(path) == 2 and path[0] == "row":
            assert starts[line - 1] == "[[row]]"


@given(st.text("ab=[]{}\"'.,#\n\\1 ", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    key_lines(text)
    with pytest.raises(ContractError):
        parse(text)
