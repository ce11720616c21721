"""An event and a bundle with something in every field."""

from veriloop_tui.core.budget import Spent
from veriloop_tui.core.bundle import Binding, CertifiedBundle, ControlledState, Origin
from veriloop_tui.core.chat import ModelFacts, Sampling
from veriloop_tui.core.event import AttemptEnded
from veriloop_tui.core.evidence import Evidence
from veriloop_tui.core.obligation import CheckId, CheckKind, CheckOutcome, CommandRecord
from veriloop_tui.core.rank import make_rank
from veriloop_tui.core.snapshot import SnapshotId
from veriloop_tui.core.transition import Decision, Label

CHECK = CheckId("tests", CheckKind.TEST, "test_a.py::test_one")
FLAKY = CheckId("tests", CheckKind.TEST, "test_a.py::test_two")
SPENT = Spent(1, 20, 3.5, 2.25, 4096)


def attempt_ended(bundle_id: str = "") -> AttemptEnded:
    evidence = Evidence("better", 1, 0, (1, 0), (0, 0), 0.5, 0.0, 0.5, True, False)
    return AttemptEnded(
        attempt=1,
        label=Label.STRICT_PROGRESS,
        decision=Decision.COMMITTED,
        improved=(CHECK,),
        worsened=(),
        revealed=(),
        rank_before=1,
        rank_after=0,
        reason="",
        repeated=False,
        zero_rank=False,
        evidence=evidence,
        bundle=bundle_id,
        spent=SPENT,
        program_time=0.1,
    )


def bundle(artifact: str, parent: str = "") -> CertifiedBundle:
    rank = make_rank({CHECK: 0}, {FLAKY: (0, 1)})
    record = CommandRecord(
        "tests", ("pytest",), -9, 1.5, "0" * 64, "tail", (CheckOutcome(CHECK, 0, group="g"),)
    )
    model = ModelFacts("m", "llama", "m.gguf", 10, 5, "Q6_K", 16.0, 4096, "1" * 64, "2" * 64)
    binding = Binding(
        origin=Origin.PROPOSED,
        parent=parent,
        contract_hash="3" * 64,
        task="fix it",
        model=model,
        sampling=Sampling(),
        seed=7,
        prompt_hash="4" * 64,
        program_version="0.1",
        sandbox_tier="best",
        staging_rung="overlay",
        platform="x",
    )
    state = ControlledState(rank, 1, SPENT, "5" * 64)
    return CertifiedBundle(SnapshotId(artifact), state, (record,), binding)
