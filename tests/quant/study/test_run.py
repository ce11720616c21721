import shutil
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from quant.study.progress import Progress
from quant.study.run import Told
from quant.study.study import Axes
from tests.quant.files import split, write_base
from tests.quant.study.small import around, numbers, run, study
from tests.scripted_gguf import write_random_gguf
from veriloop_tui.errors import (
    BaseNotFinite,
    Cancelled,
    DiskTooSmall,
    MemoryTooSmall,
    UsageError,
    VocabularyDiffers,
)


def _other(folder: Path, seed: int = 4) -> Path:
    return write_random_gguf(folder / f"other-{seed}.gguf", "llama", seed, width=256, blocks=2)


def _broken(base: Path, name: str = "broken.gguf") -> Path:
    broken = Path(shutil.copy(base, base.with_name(name)))
    reader = GGUFReader(broken, "r+")
    norm = next(one for one in reader.tensors if one.name == "output_norm.weight")
    norm.data[:] = np.nan
    reader.data.flush()
    return broken


def test_a_base_loses_nothing_against_itself_beyond_the_packing(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    (found,) = run(study(tmp_path, base, base), around(tmp_path)).comparisons
    (quant,) = found.quants
    assert found.tokens == 5 * 15
    assert 0 <= abs(quant.kld.value) < 1e-4
    assert quant.kld.value == found.floor
    assert quant.same_top.value == 1


def test_a_model_of_other_weights_loses_something(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    (found,) = run(study(tmp_path, base, _other(tmp_path)), around(tmp_path)).comparisons
    assert found.quants[0].kld.value > 1e-3


def test_a_short_text_is_refused_with_its_length(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    with pytest.raises(UsageError, match="at least 64 are needed"):
        run(study(tmp_path, base, base, words=1), around(tmp_path))


def test_a_quant_with_nan_is_stopped_by_chunk_and_position_and_others_go_on(
    tmp_path: Path,
) -> None:
    base = write_base(tmp_path)
    wanted = study(tmp_path, base, _broken(base), _other(tmp_path))
    (found,) = run(wanted, around(tmp_path)).comparisons
    (stopped,) = found.stopped
    assert stopped.name == "broken"
    assert stopped.problem in (
        "not finite in chunk 1 at position 16",
        "not finite in chunk 3 at position 16",
    )
    assert [one.name for one in found.quants] == ["other-4"]
    assert found.quants[0].kld.value > 1e-3


def test_a_base_with_nan_ends_the_study_with_its_place(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    with pytest.raises(BaseNotFinite, match=r"chunk \d at position 16"):
        run(study(tmp_path, _broken(base), base), around(tmp_path))


def test_another_vocabulary_is_refused_with_the_first_token_that_differs(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    other = tmp_path / "other.gguf"
    data = base.read_bytes()
    texts = GGUFReader(base).get_field("tokenizer.ggml.tokens")
    assert texts is not None
    word = str(texts.contents()[-1]).encode()
    at = data.index(word, data.index(b"tokenizer.ggml.tokens"))
    other.write_bytes(data[:at] + b"~" * len(word) + data[at + len(word) :])
    with pytest.raises(VocabularyDiffers, match=r"token \d+ is '~"):
        run(study(tmp_path, base, other), around(tmp_path))


def test_all_ways_give_the_same_numbers(tmp_path: Path) -> None:
    base, other = write_base(tmp_path), _other(tmp_path)
    wanted = study(tmp_path, base, other, base)
    ways = [
        run(replace(wanted, mode=mode, streams=streams), around(tmp_path / f"{mode}{streams}"))
        for mode in ("lockstep", "windows", "file")
        for streams in (1, 2)
    ]
    assert all(numbers(one) == numbers(ways[0]) for one in ways)


def test_a_sharded_model_is_measured_as_the_whole_one(tmp_path: Path) -> None:
    base, other = write_base(tmp_path), _other(tmp_path)
    whole = run(study(tmp_path, base, other), around(tmp_path / "a")).comparisons[0].quants[0]
    first, _ = split(other, tmp_path / "parts")
    shards = run(study(tmp_path, base, first), around(tmp_path / "b")).comparisons[0].quants[0]
    assert (shards.kld, shards.ppl) == (whole.kld, whole.ppl)


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    base, other = write_base(tmp_path), _other(tmp_path)
    first = run(study(tmp_path, base, other), around(tmp_path))
    told: list[Told] = []
    again = run(study(tmp_path, base, other), around(tmp_path), told.append)
    assert numbers(again) == numbers(first)
    assert not [one for one in told if isinstance(one, Progress)]


def test_a_study_that_was_broken_off_goes_on_with_the_same_numbers(tmp_path: Path) -> None:
    base, other = write_base(tmp_path), _other(tmp_path)
    whole = run(study(tmp_path, base, other), around(tmp_path / "whole"))
    wanted = replace(study(tmp_path, base, other), streams=1)
    stop = threading.Event()
    done: list[int] = []

    def watch(told: Told) -> None:
        if isinstance(told, Progress):
            done.append(told.done)
            stop.set()

    with pytest.raises(Cancelled):
        run(wanted, around(tmp_path / "broken"), watch, stop)
    assert 0 < done[-1] < 10
    again: list[int] = []
    report = run(
        wanted,
        around(tmp_path / "broken"),
        lambda told: again.append(told.done) if isinstance(told, Progress) else None,
    )
    assert again[0] == done[-1] + 1
    assert numbers(report) == numbers(whole)


def test_unequal_settings_never_share_measurements(tmp_path: Path) -> None:
    base, other = write_base(tmp_path), _other(tmp_path)
    wanted = study(tmp_path, base, other)
    run(wanted, around(tmp_path))
    for changed in (
        replace(wanted, n_ubatch=32),
        replace(wanted, chunks=4),
        replace(wanted, floor=24.0),
        replace(wanted, axes=replace(wanted.axes, threads=(1,))),
    ):
        told: list[Told] = []
        run(changed, around(tmp_path), told.append)
        assert [one for one in told if isinstance(one, Progress)]


def test_axes_are_compared_apart_and_each_text_counts_the_same_in_the_mean(tmp_path: Path) -> None:
    base, other = write_base(tmp_path), _other(tmp_path)
    wanted = study(tmp_path, base, other)
    second = tmp_path / "second.txt"
    second.write_text("Other words, in another order, make another text. " * 12, "utf-8")
    axes = Axes(n_ctx=(32, 64), kv=(("f16", "f16"), ("f32", "f32")))
    report = run(
        replace(wanted, corpora=(*wanted.corpora, str(second)), axes=axes, chunks=3),
        around(tmp_path),
    )
    assert len(report.comparisons) == 8
    assert len({one.settings for one in report.comparisons}) == 8
    assert len(report.averages) == 4
    for mean in report.averages:
        parts = [
            one
            for one in report.comparisons
            if set(mean.settings) <= set(one.settings) and one.corpus in mean.corpora
        ]
        assert len(parts) == 2
        half = sum(one.quants[0].kld.value for one in parts) / 2
        assert mean.quants[0].kld.value == pytest.approx(half)


def test_too_little_memory_or_disk_is_told_before_anything_runs(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    wanted = study(tmp_path, base, base)
    with pytest.raises(MemoryTooSmall, match="--streams 1"):
        run(wanted, around(tmp_path, memory=1 << 20))
    with pytest.raises(DiskTooSmall):
        run(replace(wanted, mode="file"), around(tmp_path, disk=100))
