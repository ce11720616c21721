import contextlib
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from quant.study.progress import Progress
from quant.study.run import Preflight, Told
from tests.quant.files import write_base
from tests.quant.study.small import around, run, study
from tests.scripted_gguf import write_random_gguf
from veriloop_tui.errors import EngineStartFailed, PassFailed


def _processes(model: Path) -> list[psutil.Process]:
    """The processes that run a model."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "quant.running.child" in one.cmdline() and str(model) in one.cmdline()[-1]:
                found.append(one)
    return found


def _kill_at_first_progress(model: Path, told: Told) -> None:
    if isinstance(told, Progress):
        for one in _processes(model):
            one.kill()


def test_a_quant_whose_process_is_killed_is_stopped_and_the_others_go_on(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    one, other = (
        write_random_gguf(tmp_path / f"q{seed}.gguf", "llama", seed, width=256, blocks=2)
        for seed in (4, 5)
    )
    wanted = replace(study(tmp_path, base, one, other, words=4000), chunks=60, streams=1)
    report = run(wanted, around(tmp_path), lambda told: _kill_at_first_progress(one, told))
    (found,) = report.comparisons
    (stopped,) = found.stopped
    assert stopped.name == "q4"
    assert "SIGKILL" in stopped.problem
    assert [quant.name for quant in found.quants] == ["q5"]


def test_a_base_whose_process_is_killed_ends_the_study_and_all_processes(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    other = write_random_gguf(tmp_path / "q.gguf", "llama", 4, width=256, blocks=2)
    wanted = replace(study(tmp_path, base, other, words=4000), chunks=60, streams=1)
    with pytest.raises(PassFailed, match="SIGKILL"):
        run(wanted, around(tmp_path), lambda told: _kill_at_first_progress(base, told))
    assert not _processes(base)
    assert not _processes(other)


def test_a_long_context_is_decoded_step_by_step(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    wanted = study(tmp_path, base, base, words=20_000)
    wanted = replace(
        wanted, axes=replace(wanted.axes, n_ctx=(4096,)), n_batch=512, n_ubatch=128, chunks=2
    )
    told: list[Told] = []
    (found,) = run(wanted, around(tmp_path), told.append).comparisons
    assert found.tokens == 2 * 2047
    assert found.quants[0].kld.value == found.floor
    (begun,) = [one for one in told if isinstance(one, Preflight)]
    assert begun.layout.memory < 1 << 29


def test_a_model_that_llama_cpp_refuses_is_told_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    base = write_base(tmp_path)
    broken = tmp_path / "broken.gguf"
    data = base.read_bytes()
    broken.write_bytes(data.replace(b"blk.0.attn_q.weight", b"blk.0.attn_x.weight"))
    with pytest.raises(EngineStartFailed):
        run(study(tmp_path, broken, base), around(tmp_path))
    (found,) = run(study(tmp_path, base, broken), around(tmp_path)).comparisons
    assert "tensor 'blk.0.attn_q.weight' not found" in found.stopped[0].problem
    assert not found.quants
