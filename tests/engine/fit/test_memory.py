from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType

from tests.engine.fit_ground import allocated
from tests.engine.paper_gguf import Dense, Hybrid, write_paper
from veriloop_tui.engine.decoding import batch
from veriloop_tui.engine.fit.memory import BATCH, Device, Plan, place, uses
from veriloop_tui.engine.gguf.facts import read_facts

HOST = Device("CPU", "", "cpu", 1 << 40, 1 << 40)
PLAN = Plan(n_ctx=4096, gpu_layers=0, sequences=1, rollback=0, speculates=False)

LLAMA = Dense(width=512, feed_forward=1536, heads=8, head=64, blocks=6, vocabulary=8_000)
GEMMA = Dense("gemma3", 640, 2048, 4, 1, 256, blocks=18, vocabulary=20_000, tied=True, window=512)
EXPERTS = Dense("qwen3moe", 512, 1024, 8, 2, 64, 4, 5_000, False, 32, 4, 384)
HYBRID = Hybrid(
    width=1024,
    feed_forward=3584,
    heads=8,
    head=256,
    blocks=8,
    vocabulary=20_000,
    state=128,
    groups=16,
    ranks=16,
)
TINY = Hybrid()


def test_a_batch_has_the_size_that_the_engine_evaluates() -> None:
    assert BATCH == batch.N_BATCH


def check(path: Path, plan: Plan, draft: Path | None = None) -> None:
    """Hold the figures against what llama.cpp allocates for the same plan."""
    facts = read_facts(path)
    own_head = plan.speculates and draft is None
    (said,) = uses(facts, read_facts(draft) if draft else None, [HOST], plan)
    real = allocated(path, plan, draft, own_head)

    # Lines of the log are rounded to 0.01 MiB.
    assert said.context == pytest.approx(real["context"], rel=0.001, abs=12_000)
    assert said.weights == pytest.approx(real["weights"], rel=0.02, abs=50_000)
    assert said.total == pytest.approx(sum(real.values()), rel=0.05)


@pytest.mark.parametrize("n_ctx", [256, 5000, 32_768])
@pytest.mark.parametrize("flash", [True, False])
def test_the_real_model_takes_what_is_foretold(smollm: Path, n_ctx: int, flash: bool) -> None:
    check(smollm, replace(PLAN, n_ctx=n_ctx, flash=flash))


@pytest.mark.parametrize("sequences", [1, 8])
@pytest.mark.parametrize("model", [Dense(), LLAMA, EXPERTS], ids=["tiny", "llama", "experts"])
def test_a_dense_model_takes_what_is_foretold(tmp_path: Path, model: Dense, sequences: int) -> None:
    path = write_paper(tmp_path / "m.gguf", model, GGMLQuantizationType.F16)

    check(path, replace(PLAN, sequences=sequences, rollback=8))


def test_keys_and_values_of_fewer_bits_take_what_is_foretold(tmp_path: Path) -> None:
    path = write_paper(tmp_path / "m.gguf", LLAMA)

    check(path, replace(PLAN, n_ctx=16_384, type_k="q8_0", type_v="q4_0"))


def test_a_model_with_sliding_windows_takes_what_is_foretold(tmp_path: Path) -> None:
    check(write_paper(tmp_path / "m.gguf", GEMMA), replace(PLAN, n_ctx=8192))


@pytest.mark.parametrize("model", [TINY, HYBRID], ids=["tiny", "0.8B"])
@pytest.mark.parametrize(("sequences", "rollback"), [(1, 0), (1, 8), (8, 0), (2, 4)])
def test_a_hybrid_model_takes_what_is_foretold(
    tmp_path: Path, model: Hybrid, sequences: int, rollback: int
) -> None:
    path = write_paper(tmp_path / "m.gguf", model, GGMLQuantizationType.F16)

    check(path, replace(PLAN, sequences=sequences, rollback=rollback))


@pytest.mark.parametrize("model", [TINY, HYBRID], ids=["tiny", "0.8B"])
def test_a_draft_head_in_a_file_of_its_own_takes_what_is_foretold(
    tmp_path: Path, model: Hybrid
) -> None:
    path = write_paper(tmp_path / "m.gguf", model)
    head = replace(model, blocks=model.blocks + 1, head_blocks=1, head_only=True)

    check(
        path,
        replace(PLAN, rollback=4, speculates=True),
        draft=write_paper(tmp_path / "mtp-m.gguf", head),
    )


@pytest.mark.parametrize("model", [TINY, HYBRID], ids=["tiny", "0.8B"])
def test_a_draft_head_inside_takes_what_is_foretold_only_where_it_is_used(
    tmp_path: Path, model: Hybrid
) -> None:
    whole = replace(model, blocks=model.blocks + 1, head_blocks=1)
    path = write_paper(tmp_path / "m.gguf", whole)

    check(path, replace(PLAN, rollback=4, speculates=True))
    (without,) = uses(read_facts(path), None, [HOST], PLAN)
    (bare,) = uses(read_facts(write_paper(tmp_path / "b.gguf", model)), None, [HOST], PLAN)
    assert without == bare


GPUS = [
    HOST,
    Device("GPU0", "", "gpu", 3 << 30, 4 << 30),
    Device("GPU1", "", "gpu", 1 << 30, 4 << 30),
]


@pytest.mark.parametrize(
    ("layers", "shares", "expected"),
    [
        (0, (), (0, 0, 0, 0, 0)),
        (5, (), (1, 1, 1, 1, 2)),
        (4, (), (0, 1, 1, 1, 2)),
        (9, (), (1, 1, 1, 1, 2)),
        (1, (), (0, 0, 0, 0, 1)),
        (5, (0.0, 1.0), (2, 2, 2, 2, 2)),
        (4, (1.0, 1.0), (0, 1, 1, 2, 2)),
        (4, (1.0,), (0, 1, 1, 1, 1)),
    ],
)
def test_the_last_layers_go_to_the_gpus_by_their_shares(
    layers: int, shares: tuple[float, ...], expected: tuple[int, ...]
) -> None:
    assert place(4, replace(PLAN, gpu_layers=layers, shares=shares), GPUS) == expected


def test_what_moves_to_a_gpu_leaves_the_machine(tmp_path: Path) -> None:
    facts = read_facts(write_paper(tmp_path / "m.gguf", LLAMA))
    (alone,) = uses(facts, None, [HOST], PLAN)

    host, gpu, other = uses(facts, None, GPUS, replace(PLAN, gpu_layers=7))

    assert host.weights == facts.sizes.input_size
    assert host.weights + gpu.weights + other.weights == alone.weights
    assert (host.context, gpu.context + other.context) == (0, alone.context)
    assert gpu.compute == other.compute > host.compute


def test_an_output_that_is_the_embedding_lies_on_both_sides(tmp_path: Path) -> None:
    facts = read_facts(write_paper(tmp_path / "m.gguf", replace(LLAMA, tied=True)))

    host, gpu = uses(facts, None, GPUS[:2], replace(PLAN, gpu_layers=7))

    assert host.weights == facts.sizes.input_size
    assert host.weights + gpu.weights == facts.sizes.size + facts.sizes.input_size
