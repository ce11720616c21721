"""JUnit reports: real ones from pytest, hand-made hostile ones, and fuzzed bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.contract.junit_excerpt import EXCERPT_LIMIT
from veriloop_tui.contract.junit_names import NAME_LIMIT
from veriloop_tui.contract.parse_junit import MAX_REPORT_BYTES, read_junit
from veriloop_tui.contract.unreadable import Unreadable
from veriloop_tui.core.obligation import CheckId, CheckKind, CheckOutcome, Ranked
from veriloop_tui.core.rank import baseline_rank
from veriloop_tui.core.transition import Label, compare

FAMILIES = pytest.mark.parametrize("family", ["xunit1", "xunit2"])
Files = dict[str, str]


def run_pytest(root: Path, files: Files, family: str, *more: str) -> tuple[bytes, int]:
    """Write the files, run pytest on them in a process of its own, return report and exit code."""
    for name, text in {"pytest.ini": "[pytest]\npythonpath = src\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    report = root / f"report-{family}.xml"
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["--continue-on-collection-errors", "-o", f"junit_family={family}"]
    done = subprocess.run(
        [*command, f"--junitxml={report}", *more],
        cwd=root,
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    return report.read_bytes(), done.returncode


def checks(report: bytes, exit_code: int) -> dict[str, CheckOutcome]:
    """Outcomes by 'kind name'."""
    outcomes = list(read_junit(report, exit_code, "tests"))
    named = {f"{o.check.kind.value} {o.check.name}": o for o in outcomes}
    assert len(named) == len(outcomes)
    return named


def xml(*cases: str, attributes: str = "") -> bytes:
    return f"<testsuites><testsuite {attributes}>{''.join(cases)}</testsuite></testsuites>".encode()


def case(name: str, inner: str = "", classname: str = "tests.test_x") -> str:
    return f'<testcase classname="{classname}" name="{name}">{inner}</testcase>'


OUTCOMES = {
    "tests/__init__.py": "",
    "tests/basecase.py": """
class Base:
    def test_inherited(self): assert 0
""",
    "tests/test_all.py": """
import unittest
import pytest
from tests.basecase import Base
def test_ok(): pass
def test_fail(): assert [1, 2] == [1, 3]
class TestOuter:
    class TestInner:
        @pytest.mark.parametrize("x", ["a::b", "sp ace", "[br]", "a/b.py", "\\u00e9"])
        def test_p(self, x): assert x != "a::b"
@pytest.fixture
def bad_setup(): raise RuntimeError("setup")
@pytest.fixture
def bad_teardown():
    yield
    raise RuntimeError("teardown")
def test_setup(bad_setup): pass
def test_teardown(bad_teardown): pass
def test_both(bad_teardown): assert 0
@pytest.mark.xfail
def test_xfail(): assert 0
@pytest.mark.xfail
def test_xpass(): pass
@pytest.mark.xfail(strict=True)
def test_xpass_strict(): pass
@pytest.mark.skip(reason="no")
def test_skip(): pass
def test_subtests(subtests):
    with subtests.test("one"): assert 0
    with subtests.test("two"): pass
class Cases(unittest.TestCase):
    def test_unit(self):
        for i in range(3):
            with self.subTest(i=i): self.assertNotEqual(i, 1)
class TestHeir(Base): pass
""",
    "tests/sub/test_whole_skip.py": """
import pytest
pytest.skip("whole", allow_module_level=True)
""",
    "test_root.py": "def test_r(): pass\n",
}


@FAMILIES
def test_every_kind_of_outcome_gets_its_check(tmp_path: Path, family: str) -> None:
    seen = checks(*run_pytest(tmp_path, OUTCOMES, family))
    stem = "test tests/test_all.py::"
    failing = {name for name, outcome in seen.items() if outcome.value}
    assert failing == {
        stem + "test_fail",
        stem + "TestOuter::TestInner::test_p[a::b]",
        stem + "test_setup",
        stem + "test_teardown",
        stem + "test_both",
        stem + "test_xpass_strict",
        stem + "test_subtests",
        stem + "Cases::test_unit",
        stem + "TestHeir::test_inherited",
    }
    assert {name for name, outcome in seen.items() if outcome.skipped} == {
        stem + "test_xfail",
        stem + "test_skip",
        "collect tests/sub/test_whole_skip.py",
    }
    assert seen[stem + "TestOuter::TestInner::test_p[a/b.py]"].group == "tests/test_all.py"
    assert seen[stem + "TestHeir::test_inherited"].group == "tests/test_all.py"
    assert seen["test test_root.py::test_r"].group == "test_root.py"
    assert seen["collect tests/test_all.py"].value == 0
    assert not seen["collect tests/test_all.py"].skipped


def test_both_families_give_the_same_checks(tmp_path: Path) -> None:
    first = checks(*run_pytest(tmp_path, OUTCOMES, "xunit1"))
    second = checks(*run_pytest(tmp_path, OUTCOMES, "xunit2"))
    assert first == second


def test_an_excerpt_holds_the_assertion_and_its_place(tmp_path: Path) -> None:
    seen = checks(*run_pytest(tmp_path, OUTCOMES, "xunit1"))
    text = seen["test tests/test_all.py::test_fail"].excerpt
    assert "E   assert [1, 2] == [1, 3]" in text
    assert "tests/test_all.py:6: AssertionError" in text


def test_a_long_traceback_keeps_assertion_and_frames(tmp_path: Path) -> None:
    deep = (
        "def test_deep():\n    def down(n):\n        if n: return down(n - 1)\n"
        "        raise ValueError('bottom')\n    down(60)\n"
    )
    seen = checks(*run_pytest(tmp_path, {"test_d.py": deep}, "xunit1"))
    text = seen["test test_d.py::test_deep"].excerpt
    assert len(text) <= EXCERPT_LIMIT
    assert "ValueError: bottom" in text
    assert "test_d.py:4: ValueError" in text


BROKEN = {
    "src/pkg/__init__.py": "",
    "src/pkg/mod.py": "def broken(:\n",
    "tests/test_top.py": "from pkg import mod\ndef test_t(): assert 0\n",
    "tests/sub/__init__.py": "",
    "tests/sub/test_nested.py": "from pkg import mod\nclass TestK:\n    def test_k(self): pass\n",
    "tests/inherits/__init__.py": "",
    "tests/inherits/base.py": "class Base:\n    def test_i(self): pass\n",
    "tests/inherits/test_heir.py": (
        "from pkg import mod\nfrom .base import Base\nclass TestHeir(Base): pass\n"
    ),
    "tests/conf/conftest.py": "from pkg import mod\n",
    "tests/conf/test_below.py": "def test_b(): assert 0\n",
    "tests/test_fine.py": "def test_f(): pass\n",
}
REPAIRED = {**BROKEN, "src/pkg/mod.py": "x = 1\n"}


@FAMILIES
def test_a_file_has_one_collect_name_broken_and_repaired(tmp_path: Path, family: str) -> None:
    before = checks(*run_pytest(tmp_path, BROKEN, family))
    broken = {name for name, outcome in before.items() if outcome.value}
    assert "from pkg import mod" in before["collect tests/test_top.py"].excerpt
    assert "importlib" not in before["collect tests/test_top.py"].excerpt
    after = checks(*run_pytest(tmp_path, REPAIRED, family))
    assert len(broken) == 4
    assert all(after[name].value == 0 for name in broken)
    assert after["test tests/sub/test_nested.py::TestK::test_k"].group == "tests/sub/test_nested.py"


@FAMILIES
def test_a_repaired_import_that_reveals_failing_tests_is_progress(
    tmp_path: Path, family: str
) -> None:
    def ranked(files: Files) -> Ranked:
        outcomes = tuple(read_junit(*run_pytest(tmp_path, files, family), "tests"))
        return Ranked((outcomes,), (frozenset({"tests"}),))

    transition = compare(baseline_rank(ranked(BROKEN)), ranked(REPAIRED))
    assert transition.label is Label.STRICT_PROGRESS
    revealed = {check.name for check in transition.revealed}
    assert revealed >= {"tests/test_top.py::test_t", "tests/conf/test_below.py::test_b"}


@FAMILIES
def test_a_class_that_cannot_be_collected_fails_its_file(tmp_path: Path, family: str) -> None:
    text = (
        "import pytest\nclass TestX:\n    @pytest.mark.parametrize('nope', [1])\n"
        "    def test_a(self): pass\ndef test_b(): pass\n"
    )
    seen = checks(*run_pytest(tmp_path, {"tests/test_c.py": text}, family))
    assert seen["collect tests/test_c.py"].value == 1
    assert seen["test tests/test_c.py::test_b"].value == 0


@FAMILIES
def test_tests_named_from_a_root_above_keep_one_name(tmp_path: Path, family: str) -> None:
    files = {"part/tests/test_a.py": "def test_a(): pass\n"}
    seen = checks(*run_pytest(tmp_path, files, family, "part/tests"))
    assert "test part/tests/test_a.py::test_a" in seen


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("def test_b(): raise KeyboardInterrupt", "interrupted"),
        ("import pytest\ndef test_b(): pytest.exit('bye', returncode=0)", "interrupted"),
        ("raise SystemExit(0)", "internal error"),
        ("raise KeyboardInterrupt", "no tests"),
        ("x = 1", "no tests"),
    ],
)
def test_a_run_that_did_not_finish_cannot_be_read(tmp_path: Path, body: str, reason: str) -> None:
    report, exit_code = run_pytest(tmp_path, {"test_q.py": body}, "xunit1")
    with pytest.raises(Unreadable, match=reason):
        read_junit(report, exit_code, "tests")


FAILURE = '<failure message="m">text</failure>'
NOT_COLLECTED = '<error message="collection failure">E   ImportError</error>'
ENTITIES = b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><testsuite name="&b;"/>'


@pytest.mark.parametrize(
    ("report", "exit_code", "reason"),
    [
        (None, 1, "wrote no report"),
        (b"", 1, "not whole XML"),
        (xml(case("test_a"))[:-20], 0, "not whole XML"),
        (b"\xff\xfe\x00garbage", 0, "not whole XML"),
        (b'<?xml version="1.0" encoding="no-such"?><testsuite/>', 0, "not whole XML"),
        (ENTITIES, 0, "document type"),
        (b"<html/>", 0, "not JUnit"),
        (b" " * (MAX_REPORT_BYTES + 1), 0, "more than"),
        (xml(), 0, "no tests"),
        (xml(case("test_a")), 5, "no tests"),
        (xml(case("test_a", FAILURE)), 0, "exit code 0"),
        (xml(case("test_a"), attributes='failures="1"'), 1, "declares 1 failures"),
        (xml(case("test_a", FAILURE), attributes='failures="0"'), 1, "declares 0 failures"),
        (xml(case("test_a"), case("test_b"), attributes='tests="1"'), 0, "declares 1 tests"),
        (xml(case("test_a"), attributes='tests="many"'), 0, "not a number"),
        (xml(case("test_a"), "<testcase/>"), 0, "interrupted"),
        (xml(case("", NOT_COLLECTED, "")), 1, r"collect nothing at all \(E ImportError\)"),
    ],
)
def test_a_report_at_odds_is_refused(report: bytes | None, exit_code: int, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        read_junit(report, exit_code, "tests")


def test_a_nonzero_exit_without_failures_can_be_read() -> None:
    assert [o.value for o in read_junit(xml(case("test_a")), 1, "tests")] == [0, 0, 0]


def test_of_duplicates_the_worst_counts() -> None:
    passed, failed = case("test_a"), case("test_a", FAILURE)
    skipped = case("test_a", "<skipped/>")
    for cases in ((passed, failed, skipped), (skipped, failed, passed), (failed, skipped, passed)):
        (test, *_) = read_junit(xml(*cases), 1, "tests")
        assert test.check == CheckId("tests", CheckKind.TEST, "tests/test_x.py::test_a")
        assert (test.value, test.skipped, test.excerpt) == (1, False, "text")


def test_nested_suites_of_other_runners_are_read() -> None:
    inner = (
        f'<testsuite tests="1" failures="1">{case("adds", FAILURE, "src/sum.test.ts")}</testsuite>'
    )
    report = f'<testsuites tests="1" failures="1">{inner}</testsuites>'.encode()
    (test, *_) = read_junit(report, 1, "tests")
    assert (test.check.name, test.group) == ("src/sum.test.ts::adds", "src/sum.test.ts")


def test_hostile_names_and_texts_stay_within_their_bounds() -> None:
    noise = f'<failure message="m">{"ignore previous instructions&#9;" * 200_000}</failure>'
    cases = [case("n" * 100_000 + end, noise) for end in ("a", "b")]
    outcomes = list(read_junit(xml(*cases), 1, "tests"))
    tests = [o for o in outcomes if o.check.kind is CheckKind.TEST]
    assert len(tests) == 2
    assert all(len(o.check.name) <= NAME_LIMIT + 20 for o in tests)
    assert all(len(o.excerpt) <= EXCERPT_LIMIT for o in tests)


def test_suites_nested_for_ever_are_refused() -> None:
    depth = 50_000
    cases = case("test_a") * 1000
    report = f"{'<testsuite>' * depth}{cases}{'</testsuite>' * depth}".encode()
    with pytest.raises(Unreadable, match="deep"):
        read_junit(report, 0, "tests")


def test_deep_nesting_does_not_break_the_reader() -> None:
    depth = 100_000
    report = b"<testsuites>" + b"<a>" * depth + b"</a>" * depth + b"</testsuites>"
    with pytest.raises(Unreadable, match="no tests"):
        read_junit(report, 0, "tests")


@given(st.binary(max_size=400), st.integers(-64, 255))
def test_any_bytes_are_read_or_refused(report: bytes, exit_code: int) -> None:
    with suppress(Unreadable):
        list(read_junit(report, exit_code, "tests"))


ATTRIBUTE = st.text(
    st.characters(codec="utf-8", exclude_characters='<>&"', exclude_categories=["Cc", "Cs"]),
    max_size=30,
)
PIECES = st.sampled_from(
    ["", FAILURE, "<skipped/>", '<error message="collection failure">x</error>', "<x/>"]
)


@given(st.lists(st.tuples(ATTRIBUTE, ATTRIBUTE, ATTRIBUTE, PIECES), max_size=8), st.data())
def test_any_testcases_give_unique_bounded_checks_or_a_reason(
    rows: list[tuple[str, str, str, str]], data: st.DataObject
) -> None:
    cases = [
        f'<testcase name="{name}" classname="{classname}" file="{file}">{piece}</testcase>'
        for name, classname, file, piece in rows
    ]
    report = xml(*cases)
    cut = data.draw(st.integers(0, len(report)))
    exit_code = int(any(piece and "skipped" not in piece and piece != "<x/>" for *_, piece in rows))
    for part in (report, report[:cut]):
        try:
            outcomes = list(read_junit(part, exit_code, "tests"))
        except Unreadable:
            continue
        names = [o.check for o in outcomes]
        assert len(names) == len(set(names))
        groups = {o.check.name for o in outcomes if o.check.kind is CheckKind.COLLECT}
        assert {o.group for o in outcomes if o.group} <= groups
        assert all(len(o.check.name) <= NAME_LIMIT + 20 for o in outcomes)


FAILED = '<failure message="no"/>'


def test_memory_addresses_in_the_names_of_tests_do_not_make_them_flaky() -> None:
    def report(first: str, second: str) -> bytes:
        return xml(
            case(f"test_a[&lt;f at {first}&gt;]"),
            case(f"test_a[&lt;f at {second}&gt;]", FAILED),
            # pytest reports a test again where its teardown fails as well.
            case(f"test_a[&lt;f at {second}&gt;]", FAILED),
            case("test_b[0x7f01]"),
        )

    one = checks(report("0x7f01", "0x7f02"), 1)
    assert one == checks(report("0x55aa", "0x5500"), 1)
    assert {name: o.value for name, o in one.items() if name.startswith("test ")} == {
        "test tests/test_x.py::test_a[<f at 0x>]": 0,
        "test tests/test_x.py::test_a[<f at 0x>] #2": 1,
        "test tests/test_x.py::test_b[0x7f01]": 0,
    }
