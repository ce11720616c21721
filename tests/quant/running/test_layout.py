from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quant.inspecting.read import read_model
from quant.running.layout import Layout, Mode, Need, Room, Runner, lay_out
from quant.running.shape import Shape
from tests.quant.files import write_base
from veriloop_tui.errors import DiskTooSmall, MemoryTooSmall

PLENTY = 1 << 40


def need(folder: Path, quants: int = 3, chunks: int = 64) -> Need:
    facts = read_model(write_base(folder)).facts
    return Need(
        runners=[Runner(facts, "f16", "f16", True)] * (1 + quants),
        shape=Shape(512, 2048, 512),
        chunks=chunks,
        vocabulary=facts.vocabulary_size,
        streams=2,
    )


def room(memory: int, disk: int = PLENTY) -> Room:
    return Room(memory, memory, False, "/records", disk)


def test_lock_step_is_taken_where_all_fits_and_one_at_a_time_where_it_does_not(
    tmp_path: Path,
) -> None:
    wanted = need(tmp_path)
    whole = lay_out(wanted, room(PLENTY))
    assert (whole.mode, whole.streams, whole.disk) == ("lockstep", 2, 0)
    less = lay_out(wanted, room(whole.memory // 2))
    assert less.mode in ("windows", "file")
    assert less.memory < whole.memory


def test_a_file_is_taken_where_few_chunks_fit_and_its_size_is_told(tmp_path: Path) -> None:
    wanted = need(tmp_path, chunks=100_000)
    one = max(wanted.process(runner, 1) for runner in wanted.runners) + wanted.shared(1)
    tight = room(round((one + 5 * wanted.chunk_size) / 0.85) + 1)
    found = lay_out(wanted, tight)
    assert found.mode == "file"
    assert found.disk > 100_000 * wanted.chunk_size
    with pytest.raises(DiskTooSmall):
        lay_out(wanted, Room(tight.memory, tight.models, False, "/records", 100), "file")


def test_what_fits_in_no_way_is_refused_with_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(MemoryTooSmall) as caught:
        lay_out(need(tmp_path), room(1 << 20))
    assert caught.value.needed > caught.value.free == 1 << 20


@given(st.integers(1 << 26, 1 << 32), st.sampled_from([None, "lockstep", "windows", "file"]))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_layout_takes_more_memory_than_there_is(
    tmp_path: Path, memory: int, mode: Mode | None
) -> None:
    try:
        found = lay_out(need(tmp_path), room(memory), mode)
    except MemoryTooSmall:
        return
    assert isinstance(found, Layout)
    assert found.memory <= memory
    assert found.window >= 1
    assert mode in (None, found.mode)
