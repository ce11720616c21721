"""JUnit XML, written by a process that ran untrusted code, to checks. Pure.

What a test runner wrote must be whole and agree with itself and with the exit code; a check that
is missing is read by the rule, a report that lies is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from veriloop_tui.contract.junit_excerpt import failure_excerpt
from veriloop_tui.contract.junit_names import bounded, files_by_module, folders, locate, steady
from veriloop_tui.contract.unreadable import Unreadable
from veriloop_tui.core.excerpt import one_line
from veriloop_tui.core.obligation import CheckId, CheckKind, CheckOutcome

MAX_REPORT_BYTES = 64_000_000
MAX_TESTCASES = 200_000
MAX_DEPTH = 20

_NO_TESTS = 5
_FAILED = ("failure", "error")
_COLLECTION = ("collection failure", "collection skipped")


@dataclass(frozen=True, slots=True)
class _Case:
    """One `testcase` element."""

    name: str
    classname: str
    file: str
    failed: bool
    skipped: bool
    is_collection: bool
    texts: tuple[str, ...]


def read_junit(report: bytes | None, exit_code: int, obligation: str) -> Iterator[CheckOutcome]:
    """Test and collect checks of one run, in order of first appearance.

    Raises `Unreadable` for a report that is missing, damaged, too large, unfinished, without any
    test, or at odds with its own counts or with the exit code.
    """
    root = _parse(report, exit_code)
    cases = [_read_case(element) for element in _bounded_cases(root)]
    for suite in _suites(root):
        _compare_counts(suite)
    if exit_code == _NO_TESTS or not cases:
        raise Unreadable("collected no tests")
    failures = sum(case.failed for case in cases)
    if failures and exit_code == 0:
        raise Unreadable(f"ended with exit code 0 though its report has {failures} failures")
    return iter(_worst(_outcomes(cases, obligation)))


def _parse(report: bytes | None, exit_code: int) -> Element:
    if report is None:
        raise Unreadable(f"wrote no report (exit code {exit_code})")
    if len(report) > MAX_REPORT_BYTES:
        raise Unreadable(f"wrote a report of more than {MAX_REPORT_BYTES} bytes")
    try:
        root: Element = fromstring(report, forbid_dtd=True)
    except DefusedXmlException as problem:
        raise Unreadable("wrote a report with a document type or entities") from problem
    except (ParseError, ValueError, LookupError) as problem:
        detail = one_line(str(problem), 120)
        raise Unreadable(f"wrote a report that is not whole XML ({detail})") from problem
    if root.tag not in ("testsuites", "testsuite"):
        raise Unreadable("wrote a report that is not JUnit XML")
    return root


def _bounded_cases(root: Element) -> Iterator[Element]:
    for count, element in enumerate(root.iter("testcase"), start=1):
        if count > MAX_TESTCASES:
            raise Unreadable(f"reported more than {MAX_TESTCASES} tests")
        yield element


def _suites(root: Element) -> Iterator[Element]:
    """Every suite. The depth is bounded, since each suite's counts cover all below it."""
    waiting = [(root, 0)]
    while waiting:
        element, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise Unreadable(f"nests its suites more than {MAX_DEPTH} deep")
        if element.tag == "testsuite":
            yield element
        waiting += [(child, depth + 1) for child in element if child.tag.startswith("testsuite")]


def _compare_counts(suite: Element) -> None:
    """Runners count elements or tests, of this suite or of all below it; any of these will do.

    `tests` may be larger than what is listed: pytest counts passing subtests there.
    """
    every, direct = list(suite.iter("testcase")), suite.findall("testcase")
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        declared = _count(suite, attribute)
        if declared is None:
            continue
        found = [len(case.findall(tag)) for cases in (every, direct) for case in cases]
        split = len(every)
        seen = {
            count
            for group in (found[:split], found[split:])
            for count in (sum(group), sum(map(bool, group)))
        }
        if declared not in seen:
            raise Unreadable(f"declares {declared} {attribute} but lists {sum(found[:split])}")
    tests = _count(suite, "tests")
    listed = min(len({_key(case) for case in cases}) for cases in (every, direct))
    if tests is not None and tests < listed:
        raise Unreadable(f"declares {tests} tests but lists {listed}")


def _key(case: Element) -> tuple[str | None, ...]:
    return case.get("classname"), case.get("name"), case.get("file")


def _count(suite: Element, attribute: str) -> int | None:
    text = suite.get(attribute)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_TESTCASES)) + 6):
        raise Unreadable(f"wrote a report whose count of {attribute} is not a number")
    return int(text)


def _read_case(element: Element) -> _Case:
    name, classname = element.get("name", ""), element.get("classname", "")
    problems = [child for child in element if child.tag in _FAILED]
    skips = [child for child in element if child.tag == "skipped"]
    messages = {child.get("message", "") for child in (*problems, *skips)}
    is_collection = bool(messages) and messages <= set(_COLLECTION)
    if not name and is_collection:
        # Older pytest gives up on the whole where a nested conftest.py fails.
        detail = one_line(failure_excerpt([_text(child) for child in problems])[-200:], 200)
        raise Unreadable(f"could collect nothing at all ({detail})")
    if not name:
        raise Unreadable("was interrupted in the middle of a test")
    if classname == "pytest" and name == "internal" and "internal error" in messages:
        raise Unreadable("was ended by an internal error of the test runner")
    return _Case(
        name,
        classname,
        element.get("file", ""),
        failed=bool(problems),
        skipped=bool(skips) and not problems,
        is_collection=is_collection,
        texts=tuple(_text(child) for child in problems),
    )


def _text(problem: Element) -> str:
    message, body = problem.get("message", ""), problem.text or ""
    return body if body.strip() else message


def _outcomes(cases: list[_Case], obligation: str) -> Iterator[CheckOutcome]:
    files = files_by_module(case.file for case in cases)
    collected: dict[str, None] = {}
    taken: dict[str, dict[str, int]] = {}
    for case in cases:
        excerpt = failure_excerpt(case.texts) if case.failed else ""
        if case.is_collection:
            file, _ = locate(_module_hint(case), files)
            name = bounded(file or _module_hint(case))
            check = CheckId(obligation, CheckKind.COLLECT, name)
            yield CheckOutcome(check, int(case.failed), case.skipped, excerpt=excerpt)
            collected.update(dict.fromkeys(folders(file)))
            continue
        file, classes = locate(case.classname, files)
        head = file or case.classname
        parts = (head, *classes, case.name) if file else (head, case.name)
        name = steady("::".join(filter(None, parts)), taken)
        check = CheckId(obligation, CheckKind.TEST, bounded(name))
        group = bounded(file) if file else ""
        yield CheckOutcome(check, int(case.failed), case.skipped, group, excerpt)
        if file:
            collected.update(dict.fromkeys((file, *folders(file))))
    for name in collected:
        yield CheckOutcome(CheckId(obligation, CheckKind.COLLECT, bounded(name)), 0)


def _module_hint(case: _Case) -> str:
    """The dotted name that the case's file is part of; a failed file is named by its `name`."""
    return case.classname or (case.name if case.is_collection else "")


def _worst(outcomes: Iterable[CheckOutcome]) -> list[CheckOutcome]:
    """One outcome per check: failed over passed over skipped; the first of its kind is kept."""
    kept: dict[CheckId, CheckOutcome] = {}
    for outcome in outcomes:
        before = kept.get(outcome.check)
        if before is None or _badness(outcome) > _badness(before):
            kept[outcome.check] = outcome
    return list(kept.values())


def _badness(outcome: CheckOutcome) -> int:
    return -1 if outcome.skipped else outcome.value
