"""The whole proposer, with a model that says what it is told to."""

from __future__ import annotations

import pytest

from tests.proposer.fakes import BASE, NEVER, FakeModel, FakeSnapshots, context, failing, protects
from veriloop_tui.core.ports import Asked, InvalidAnswer, Proposal, ProposalContext, Proposer
from veriloop_tui.core.snapshot import Candidate, Write
from veriloop_tui.proposer.propose import ModelProposer

FILES = {
    "calc.py": b'''\
def add(a, b):
    """Add."""
    return a - b


def sub(a, b):
    return a
''',
    "tests/test_calc.py": b"""\
from calc import add, sub

def test_add():
    assert add(1, 1) == 2

def test_sub():
    assert sub(1, 1) == 0
""",
}
ADD, SUB = failing("tests/test_calc.py::test_add"), failing("tests/test_calc.py::test_sub")
TINY = 135_000_000
_BLOCK = "calc.py\n<<<<<<< SEARCH\n    return a - b\n=======\n    return a + b\n>>>>>>> REPLACE"
_FIXED = FILES["calc.py"].replace(b"a - b", b"a + b")


def _ask(model: FakeModel, asked: ProposalContext) -> tuple[Asked, list[str], Proposal]:
    proposer: Proposer = ModelProposer(
        model, FakeSnapshots(FILES, frozenset({"link.py"})), protects
    )
    steps = proposer.propose(asked, NEVER)
    first = next(steps)
    assert isinstance(first, Asked)
    pieces: list[str] = []
    while True:
        try:
            piece = next(steps)
        except StopIteration as end:
            return first, pieces, end.value
        assert isinstance(piece, str)
        pieces.append(piece)


def test_a_search_replace_answer_becomes_a_candidate_and_its_text_streams() -> None:
    model = FakeModel(("Here:\n", _BLOCK))
    first, pieces, proposal = _ask(model, context(ADD))
    assert (first.form, first.target) == ("search-replace", "")
    assert pieces == ["Here:\n", _BLOCK]
    assert proposal.text == "Here:\n" + _BLOCK
    assert proposal.usage.evaluated_tokens == 6
    assert proposal.result == Candidate(BASE, (Write("calc.py", _FIXED),))


def test_a_tiny_model_goes_on_from_the_head_of_a_function() -> None:
    model = FakeModel(("\n    return a + b\n",), parameters=TINY)
    first, pieces, proposal = _ask(model, context(ADD))
    (request,) = model.requests
    assert (first.form, first.target) == ("function", "calc.py::add")
    assert request.continue_final_message
    assert request.messages[-1].content == pieces[0]
    assert proposal.text == '```python\ndef add(a, b):\n    """Add."""\n    return a + b\n'
    assert proposal.result == Candidate(BASE, (Write("calc.py", _FIXED),))


def test_attempts_take_turns_over_the_failing_functions_and_then_show_the_body() -> None:
    seen = []
    for attempt in range(1, 5):
        model = FakeModel(("\n    pass",), parameters=TINY)
        first, _, _ = _ask(model, context(ADD, SUB, attempt=attempt))
        shown = "has a bug" in model.requests[0].messages[1].content
        seen.append((first.target, shown))
    assert seen == [
        ("calc.py::add", False),
        ("calc.py::sub", False),
        ("calc.py::add", True),
        ("calc.py::sub", True),
    ]


def test_without_a_function_to_ask_for_a_tiny_model_is_asked_for_files() -> None:
    first, _, _ = _ask(FakeModel(("no",), parameters=TINY), context(failing("make check")))
    assert first.form == "file"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("I cannot.", "holds no edit"),
        (_BLOCK.replace("calc.py", "tests/test_calc.py"), "is protected"),
        (_BLOCK.replace("calc.py", "../calc.py"), "inside the workspace"),
        (_BLOCK.replace("calc.py", "link.py"), "is a symlink"),
        ("<think>\n" + _BLOCK, "still thinking"),
    ],
)
def test_an_answer_that_is_no_candidate_says_why(answer: str, problem: str) -> None:
    _, _, proposal = _ask(FakeModel((answer,)), context(ADD))
    assert isinstance(proposal.result, InvalidAnswer)
    assert problem in proposal.result.problem


def test_a_search_that_misses_tells_the_nearest_text() -> None:
    _, _, proposal = _ask(FakeModel((_BLOCK.replace("a - b", "a-b"),)), context(ADD))
    assert isinstance(proposal.result, InvalidAnswer)
    assert proposal.result.path == "calc.py"
    assert proposal.result.nearest == "    return a - b\n"


def test_what_the_model_thought_is_not_read_as_edits() -> None:
    thought = _BLOCK.replace("a + b", "b")
    for opening in ("<think>", ""):
        answer = f"{opening}Maybe\n{thought}\n</think>\n{_BLOCK}"
        _, _, proposal = _ask(FakeModel((answer,)), context(ADD))
        assert proposal.result == Candidate(BASE, (Write("calc.py", _FIXED),))


def test_an_answer_cut_off_at_its_limit_is_still_read_and_says_so_where_it_fails() -> None:
    _, _, proposal = _ask(FakeModel((_BLOCK,), finish="length"), context(ADD))
    assert isinstance(proposal.result, Candidate)
    _, _, proposal = _ask(FakeModel((_BLOCK[:-20],), finish="length"), context(ADD))
    assert isinstance(proposal.result, InvalidAnswer)
    assert "cut off" in proposal.result.problem


def test_a_stopped_answer_is_never_a_candidate() -> None:
    _, _, proposal = _ask(FakeModel((_BLOCK,), finish="cancelled"), context(ADD))
    assert isinstance(proposal.result, InvalidAnswer)


def test_the_same_context_asks_the_same_and_the_seed_goes_through() -> None:
    first, second = FakeModel((_BLOCK,)), FakeModel((_BLOCK,))
    assert _ask(first, context(ADD))[0] == _ask(second, context(ADD))[0]
    assert first.requests == second.requests
    assert first.requests[0].seed == 7


def test_a_server_that_does_not_tell_its_context_is_asked_with_a_modest_one() -> None:
    model = FakeModel((_BLOCK,), n_ctx=0)
    _ask(model, context(ADD))
    assert 0 < model.requests[0].max_tokens <= 4096
