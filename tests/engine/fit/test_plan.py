from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.paper_gguf import Dense, Hybrid, write_paper
from veriloop_tui.engine.fit.memory import Device
from veriloop_tui.engine.fit.plan import (
    Fit,
    choose,
    largest_n_ctx,
    loaded_by,
    margin,
    measured,
    next_smaller,
    shortage,
    summary,
)
from veriloop_tui.engine.gguf.facts import GGUFFacts, read_facts
from veriloop_tui.engine.settings import LoadSettings

GIB = 1 << 30
DENSE = Dense("qwen3", 1024, 3072, 16, 8, 128, blocks=28, vocabulary=20_000)
HYBRID = Hybrid(
    width=1024,
    feed_forward=3584,
    heads=8,
    head=256,
    blocks=24,
    vocabulary=20_000,
    state=128,
    groups=16,
    ranks=16,
)
WANTED = LoadSettings(Path("m.gguf"))


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> GGUFFacts:
    path = tmp_path_factory.mktemp("fit") / "dense.gguf"
    return read_facts(write_paper(path, DENSE, GGMLQuantizationType.F16))


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> GGUFFacts:
    path = tmp_path_factory.mktemp("fit") / "hybrid.gguf"
    return read_facts(write_paper(path, HYBRID, GGMLQuantizationType.F16))


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> GGUFFacts:
    path = tmp_path_factory.mktemp("fit") / "mtp.gguf"
    head = replace(HYBRID, blocks=25, head_blocks=1, head_only=True)
    return read_facts(write_paper(path, head, GGMLQuantizationType.F16))


def host(free: float) -> Device:
    return Device("CPU", "", "cpu", round(free * GIB), round(free * GIB))


def gpu(free: float, name: str = "GPU0") -> Device:
    return Device(name, "", "gpu", round(free * GIB), round(free * GIB))


def test_where_everything_fits_the_defaults_are_taken_and_said(dense: GGUFFacts) -> None:
    fit = choose(dense, None, [host(64)], WANTED)

    assert fit.fits
    assert (fit.plan.n_ctx, fit.plan.gpu_layers, fit.plan.sequences) == (32_768, 0, 8)
    assert summary(fit).endswith("of the 64.00 GiB free on CPU.")
    (reason,) = fit.reasons
    assert "32,768 tokens of the 262,144" in reason


def test_a_small_model_s_context_is_no_longer_than_it_was_made_for(smollm: Path) -> None:
    assert choose(read_facts(smollm), None, [host(64)], WANTED).plan.n_ctx == 8192


def test_all_layers_go_to_a_gpu_that_has_room(dense: GGUFFacts) -> None:
    fit = choose(dense, None, [host(64), gpu(24)], WANTED)

    assert (fit.plan.gpu_layers, fit.plan.n_ctx) == (29, 32_768)
    assert fit.on_gpu
    assert fit.uses[1].weights > fit.uses[0].weights


def test_without_a_split_only_the_first_gpu_is_used(dense: GGUFFacts) -> None:
    cards = [host(64), gpu(24), gpu(24, "GPU1")]

    split = choose(dense, None, cards, WANTED)
    single = choose(dense, None, cards, replace(WANTED, split_mode="none"))
    shared = choose(dense, None, cards, replace(WANTED, tensor_split=(1.0, 3.0)))

    assert split.uses[1].weights > 0 < split.uses[2].weights
    assert single.uses[2].total == 0
    assert shared.uses[2].weights > 2 * shared.uses[1].weights


def test_the_context_shrinks_before_layers_leave_the_gpu(dense: GGUFFacts) -> None:
    fit = choose(dense, None, [host(64), gpu(3.5)], WANTED)

    assert fit.plan.gpu_layers == 29
    assert 8192 <= fit.plan.n_ctx < 32_768
    assert any("32,768 do not fit" in reason for reason in fit.reasons)
    more = replace(WANTED, n_ctx=fit.plan.n_ctx + 256, gpu_layers=29)
    assert not choose(dense, None, [host(64), gpu(3.5)], more).fits


def test_a_context_that_was_asked_for_stays_and_layers_go(dense: GGUFFacts) -> None:
    fit = choose(dense, None, [host(64), gpu(2)], replace(WANTED, n_ctx=32_768))

    assert fit.fits
    assert fit.plan.n_ctx == 32_768
    assert 0 < fit.plan.gpu_layers < 29
    assert f"{fit.plan.gpu_layers} of 29 layers" in summary(fit)


def test_layers_that_were_asked_for_stay_and_the_context_goes(dense: GGUFFacts) -> None:
    fit = choose(dense, None, [host(64), gpu(2.5)], replace(WANTED, gpu_layers=29))

    assert fit.fits
    assert fit.plan.gpu_layers == 29
    assert fit.plan.n_ctx < 32_768


def test_a_draft_head_goes_first_and_that_is_said(hybrid: GGUFFacts, draft: GGUFFacts) -> None:
    with_head = choose(hybrid, draft, [host(64)], WANTED)
    need = sum(use.total for use in with_head.uses)
    room = host((need - 1) / GIB / 0.9)

    fit = choose(hybrid, draft, [room], replace(WANTED, draft=Path("mtp.gguf")))

    assert with_head.plan.speculates
    assert with_head.has_head
    assert fit.fits
    assert not fit.plan.speculates
    assert fit.plan.n_ctx == 32_768
    assert "draft head" in fit.reasons[-1]
    assert loaded_by(fit, replace(WANTED, draft=Path("mtp.gguf"))).draft is None


def test_what_cannot_fit_is_said_with_what_is_missing(dense: GGUFFacts) -> None:
    fit = choose(dense, None, [host(1)], WANTED)

    assert not fit.fits
    assert fit.plan.n_ctx == 2048
    assert "do not fit" in fit.reasons[0]
    assert "are missing; take a smaller quant or model" in fit.reasons[-1]


def test_a_gpu_that_shares_the_machine_s_memory_is_counted_once(dense: GGUFFacts) -> None:
    shared = replace(gpu(4), kind="igpu")

    fit = choose(dense, None, [host(4), shared], replace(WANTED, n_ctx=8192))

    assert fit.fits
    taken = sum(use.total for use in fit.uses)
    assert taken <= host(4).free - margin(host(4))
    assert not choose(dense, None, [host(1), replace(shared, free=64 * GIB)], WANTED).fits


def test_after_running_out_of_memory_each_step_is_smaller_and_says_so(
    hybrid: GGUFFacts, draft: GGUFFacts
) -> None:
    fit: Fit | None = choose(hybrid, draft, [host(64), gpu(24)], WANTED)
    seen: list[Fit] = []
    while fit is not None:
        seen.append(fit)
        fit = next_smaller(fit)

    totals = [sum(use.total for use in one.uses) for one in seen]
    on_gpu = [one.uses[1].total for one in seen]
    assert seen[1].reasons[0].startswith("Speculation is off: the draft head")
    assert "16,384 tokens instead of 32,768" in seen[2].reasons[0]
    assert "18 layers are on the GPU instead of 25" in seen[6].reasons[0]
    assert all(after < before for before, after in pairwise(on_gpu))
    assert totals[5] < totals[0]
    assert (seen[-1].plan.n_ctx, seen[-1].plan.gpu_layers) == (2048, 0)


def test_the_largest_context_is_the_last_that_fits(dense: GGUFFacts) -> None:
    fit = choose(dense, None, [host(6)], replace(WANTED, n_ctx=8192))

    most = largest_n_ctx(fit)

    assert most % 256 == 0
    assert choose(dense, None, [host(6)], replace(WANTED, n_ctx=most)).fits
    assert not choose(dense, None, [host(6)], replace(WANTED, n_ctx=most + 256)).fits
    assert largest_n_ctx(choose(dense, None, [host(0.5)], WANTED)) == 0


def test_figures_of_llama_cpp_take_the_place_of_the_formulas(dense: GGUFFacts) -> None:
    fit = choose(dense, None, [host(64), gpu(24)], WANTED)
    context = fit.uses[1].context

    found = measured(fit, {"GPU0": 700, "CPU": 50, "GPU_Host": 5}, 2 * context)

    assert found.confirmed
    assert found.uses[1].compute == 700
    assert found.uses[0].compute == 55
    assert found.uses[1].context == 2 * context
    assert found.uses[1].weights == fit.uses[1].weights


@settings(max_examples=60, deadline=None)
@given(
    memory=st.floats(0, 40),
    cards=st.lists(st.floats(0, 12), max_size=3),
    n_ctx=st.none() | st.integers(1, 100_000),
    layers=st.none() | st.integers(-1, 40),
    head=st.booleans(),
)
def test_a_plan_fits_or_says_that_it_does_not_and_keeps_what_was_asked_for(
    hybrid: GGUFFacts,
    draft: GGUFFacts,
    memory: float,
    cards: list[float],
    n_ctx: int | None,
    layers: int | None,
    head: bool,
) -> None:
    devices = [host(memory), *(gpu(free, f"GPU{at}") for at, free in enumerate(cards))]
    wanted = replace(WANTED, n_ctx=n_ctx, gpu_layers=layers)

    fit = choose(hybrid, draft if head else None, devices, wanted)

    assert fit.fits == (shortage(devices, fit.uses) == 0)
    assert fit.fits != any("does not fit" in reason for reason in fit.reasons)
    if n_ctx is not None:
        assert fit.plan.n_ctx == n_ctx
    if layers is not None and cards:
        assert fit.plan.gpu_layers == (min(layers, 25) if layers >= 0 else 25)
    if fit.fits:
        for device, use in zip(devices, fit.uses, strict=True):
            assert use.total <= max(0, device.free - margin(device))
    settings_of = loaded_by(fit, wanted)
    assert settings_of.n_ctx == fit.plan.n_ctx
