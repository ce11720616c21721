import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quant.inspecting.diff import block_ranges, difference
from quant.inspecting.read import read_model
from quant.making.make import make
from quant.making.plan import plan
from quant.making.target import Recipe, parse_override, parse_targets
from tests.quant.files import write_base, write_tensors

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def quants(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same Q4_0 twice, the second with one kind of tensor kept higher, and one lower."""
    folder = tmp_path_factory.mktemp("quants")
    base = write_base(folder)
    paths: list[Path] = []
    for name, overrides in (("a", ()), ("b", ("attn_v=Q8_0", r"blk\.1\.ffn_up=Q2_K"))):
        (folder / name).mkdir()
        recipe = Recipe(overrides=tuple(map(parse_override, overrides)), threads=1)
        never = threading.Event()
        planned = plan(base, folder / name, parse_targets("Q4_0"), recipe, "refuse", never)
        list(make(planned, never))
        paths.append(planned.quants[0].path)
    return paths[0], paths[1]


def test_the_tensors_that_one_quant_keeps_higher_are_told_by_kind(
    quants: tuple[Path, Path],
) -> None:
    found = difference(read_model(quants[0]), read_model(quants[1]))

    (higher,) = found.higher_second
    assert (higher.pattern, higher.blocks) == ("blk.*.attn_v.weight", (0, 1))
    assert (higher.first_type, higher.second_type) == ("Q4_0", "Q8_0")
    assert higher.second_size > higher.first_size
    (lower,) = found.higher_first
    assert (lower.pattern, lower.blocks) == ("blk.*.ffn_up.weight", (1,))
    assert found.same == len(read_model(quants[0]).tensors) - 3


def test_a_model_differs_in_nothing_from_itself(quants: tuple[Path, Path]) -> None:
    found = difference(read_model(quants[0]), read_model(quants[0]))
    assert (found.higher_first, found.higher_second, found.only_first) == ((), (), ())


def test_tensors_of_other_models_are_told_apart(tmp_path: Path) -> None:
    first = write_tensors(tmp_path / "1.gguf", {"a.weight": (4, 32), "b.weight": (4, 32)})
    second = write_tensors(tmp_path / "2.gguf", {"b.weight": (8, 32), "c.weight": (4, 32)})
    found = difference(read_model(first), read_model(second))
    assert (found.only_first, found.only_second) == (("a.weight",), ("c.weight",))
    assert found.reshaped == ("b.weight",)


@given(st.frozensets(st.integers(0, 60)))
def test_ranges_of_blocks_name_each_block_once(blocks: frozenset[int]) -> None:
    named: list[int] = []
    for part in filter(None, block_ranges(blocks).split(", ")):
        low, _, high = part.partition("-")
        named += range(int(low), int(high or low) + 1)
    assert named == sorted(blocks)


def inspected(*arguments: str) -> str:
    code = "import typer; from quant.cli.inspect import show; typer.run(show)"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "150", "PATH": "/usr/bin:/bin"},
    )
    return done.stdout


def test_the_command_lists_the_smallest_file_first(quants: tuple[Path, Path]) -> None:
    larger, smaller = sorted(map(str, quants), key=lambda path: -Path(path).stat().st_size)
    document = json.loads(inspected(larger, smaller, "--json"))
    assert [one["files"] for one in document["files"]] == [[smaller], [larger]]
    assert document["difference"]["same"] > 0


def test_a_hostile_name_reaches_the_terminal_without_its_escapes(tmp_path: Path) -> None:
    path = tmp_path / "\x1b]0;owned\x07[red]m\x1b[31m.gguf"
    write_tensors(path, {"\x1b[2Ja.weight": (4, 32)})
    text = inspected(str(path), "--tensors")
    assert "\x1b" not in text
    assert "[red]m" in text
