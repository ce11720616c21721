import fcntl
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from quant.inspecting.read import read_model
from quant.making.make import Kept, Made, Progress, Working, make
from quant.making.plan import Existing, Plan, plan
from quant.making.target import FILE_TYPES, Recipe, parse_override, parse_targets
from tests.quant.files import legacy_imatrix, smollm_path, split, write_base
from tests.scripted_gguf import write_scripted_draft_gguf
from veriloop_tui.errors import (
    Cancelled,
    DiskTooSmall,
    ModelNotFound,
    QuantNotMade,
    UsageError,
)

ROOT = Path(__file__).parents[3]
NEVER = threading.Event()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"))


def planned(
    base: Path, out: Path, types: str, recipe: Recipe | None = None, existing: Existing = "refuse"
) -> Plan:
    return plan(base, out, parse_targets(types), recipe or Recipe(threads=1), existing, NEVER)


def made(of: Plan) -> list[Progress]:
    return list(make(of, NEVER))


def types_of(path: Path) -> dict[str, str]:
    return {tensor.name: tensor.type_name for tensor in read_model(path).tensors}


def bytes_of(path: Path) -> dict[str, bytes]:
    return {tensor.name: tensor.data.tobytes() for tensor in GGUFReader(path).tensors}


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Writing beyond `size` bytes fails, here and in processes started meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_quants_come_out_as_planned_under_the_base_s_name(base: Path, tmp_path: Path) -> None:
    plans = planned(base, tmp_path, "Q8_0,Q4_K_M")
    events = made(plans)

    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "tiny-Q4_K_M.gguf",
        "tiny-Q8_0.gguf",
    ]
    for one in plans.quants:
        model = read_model(one.path)
        assert model.stated == one.target.label
        assert types_of(one.path) == dict(one.types)
        assert abs(model.facts.file_size - one.predicted) < 1024
    assert sum(isinstance(event, Made) for event in events) == 2
    steps = [event for event in events if isinstance(event, Working)]
    assert [step.index for step in steps[: steps[0].of]] == list(range(1, steps[0].of + 1))


def test_a_base_in_parts_becomes_one_file(base: Path, tmp_path: Path) -> None:
    parts = split(base, tmp_path / "parts")
    (tmp_path / "out").mkdir()
    made(planned(parts[1], tmp_path / "out", "Q8_0"))
    (quant,) = (tmp_path / "out").iterdir()
    assert quant.name == "parts-Q8_0.gguf"
    made(planned(base, tmp_path, "Q8_0"))
    assert bytes_of(quant) == bytes_of(tmp_path / "tiny-Q8_0.gguf")


def test_a_tensor_that_an_override_finds_gets_its_own_type(base: Path, tmp_path: Path) -> None:
    recipe = Recipe(overrides=(parse_override("blk\\.0\\.attn_V=q8_0"),), threads=1)
    made(planned(base, tmp_path, "Q4_K_S", recipe))
    types = types_of(tmp_path / "tiny-Q4_K_S.gguf")
    assert types["blk.0.attn_v.weight"] == "Q8_0"
    assert types["blk.1.attn_v.weight"] != "Q8_0"


def test_output_and_embeddings_get_the_types_asked_for(base: Path, tmp_path: Path) -> None:
    made(planned(base, tmp_path, "Q4_0", Recipe(output_type="F16", embedding_type="Q5_K")))
    types = types_of(tmp_path / "tiny-Q4_0.gguf")
    assert (types["output.weight"], types["token_embd.weight"]) == ("F16", "Q5_K")


def test_overrides_of_a_type_that_ignores_them_are_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="would be ignored"):
        planned(base, tmp_path, "F16", Recipe(overrides=(parse_override("attn_v=Q8_0"),)))


def test_an_importance_matrix_changes_the_weights_and_is_told_of(
    base: Path, tmp_path: Path
) -> None:
    random = np.random.default_rng(1)
    weights = {
        tensor.name: random.uniform(0.01, 9, tensor.shape[0]).astype(np.float32)
        for tensor in read_model(base).tensors
        if len(tensor.shape) == 2 and tensor.name.startswith("blk.0.")
    }
    imatrix = tmp_path / "secret-folder" / "tiny.imatrix"
    imatrix.parent.mkdir()
    imatrix.write_bytes(legacy_imatrix(weights, 3, 21, "words.txt"))
    without, with_it = tmp_path / "without", tmp_path / "with"
    without.mkdir()
    with_it.mkdir()

    made(planned(base, without, "Q3_K_S"))
    plans = planned(base, with_it, "Q3_K_S", Recipe(imatrix=imatrix, threads=1))
    events = made(plans)

    assert plans.notices == (
        "The importance matrix weighs 7 tensors; it saw 21 chunks of words.txt.",
    )
    (last,) = [event for event in events if isinstance(event, Made)]
    assert "blk.1.attn_q.weight" in last.unweighted
    assert "blk.0.attn_q.weight" not in last.unweighted
    fields = GGUFReader(with_it / "tiny-Q3_K_S.gguf").fields
    told = {
        name: field.contents()
        for name, field in fields.items()
        if name.startswith("quantize.imatrix.")
    }
    assert told == {
        "quantize.imatrix.file": "tiny.imatrix",
        "quantize.imatrix.dataset": "words.txt",
        "quantize.imatrix.entries_count": 7,
        "quantize.imatrix.chunks_count": 21,
    }
    plain, weighed = (bytes_of(folder / "tiny-Q3_K_S.gguf") for folder in (without, with_it))
    changed = {name for name in plain if plain[name] != weighed[name]}
    assert changed == set(weights)


def test_a_matrix_of_another_model_is_refused(base: Path, tmp_path: Path) -> None:
    imatrix = tmp_path / "other.imatrix"
    imatrix.write_bytes(legacy_imatrix({"other.weight": np.ones(4, np.float32)}, 1, 1, ""))
    with pytest.raises(UsageError, match="knows none of the tensors"):
        planned(base, tmp_path, "Q4_0", Recipe(imatrix=imatrix))


def test_a_type_that_needs_a_matrix_is_refused_before_any_work(base: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="IQ2_XXS comes out as garbage"):
        planned(base, tmp_path, "Q8_0,IQ2_XXS")
    assert not list(tmp_path.iterdir())


def test_a_base_that_is_a_quant_needs_the_user_s_word(base: Path, tmp_path: Path) -> None:
    made(planned(base, tmp_path, "Q8_0"))
    quant = tmp_path / "tiny-Q8_0.gguf"
    with pytest.raises(UsageError, match="the losses add up"):
        planned(quant, tmp_path, "Q4_0")
    made(planned(quant, tmp_path, "Q4_0", Recipe(requantise=True, threads=1)))
    assert read_model(tmp_path / "tiny-Q4_0.gguf").stated == "Q4_0"


def test_what_is_there_already_is_refused_kept_or_replaced(base: Path, tmp_path: Path) -> None:
    there = tmp_path / "tiny-Q8_0.gguf"
    there.write_bytes(b"mine")
    with pytest.raises(UsageError, match="exists already"):
        planned(base, tmp_path, "Q8_0")

    assert made(planned(base, tmp_path, "Q8_0", existing="keep")) == [Kept(there)]
    assert there.read_bytes() == b"mine"

    made(planned(base, tmp_path, "Q8_0", existing="replace"))
    assert read_model(there).stated == "Q8_0"


def test_the_base_is_never_written_over(tmp_path: Path) -> None:
    base = write_base(tmp_path, "tiny-F16.gguf")
    with pytest.raises(UsageError, match="is the base itself"):
        planned(base, tmp_path, "F16", existing="replace")


def test_a_base_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        planned(tmp_path / "none.gguf", tmp_path, "Q8_0")


def test_a_disk_without_room_is_told_before_any_work(base: Path, tmp_path: Path) -> None:
    with pytest.raises(DiskTooSmall) as caught:
        plan(base, tmp_path, parse_targets("Q8_0"), Recipe(), "refuse", NEVER, lambda _: 1_000_000)
    assert caught.value.free == 1_000_000
    assert caught.value.needed > 1_000_000


def test_a_write_that_fails_leaves_nothing_behind(base: Path, tmp_path: Path) -> None:
    plans = planned(base, tmp_path, "Q8_0")
    with files_of_at_most(200_000), pytest.raises(QuantNotMade):
        made(plans)
    assert not list(tmp_path.iterdir())


def test_a_quant_that_is_not_the_planned_one_is_never_published(base: Path, tmp_path: Path) -> None:
    plans = planned(base, tmp_path, "Q8_0")
    (one,) = plans.quants
    other = tuple((name, "Q4_0") for name, _ in one.types)
    with pytest.raises(QuantNotMade, match="not those of the plan"):
        made(replace(plans, quants=(replace(one, types=other),)))
    mislabelled = replace(one, target=replace(one.target, number=FILE_TYPES["Q4_0"]))
    with pytest.raises(QuantNotMade, match="not those of the plan"):
        made(replace(plans, quants=(mislabelled,)))
    assert not list(tmp_path.iterdir())


def test_weights_that_are_not_finite_become_no_quant(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    data = bytearray(base.read_bytes())
    data[-4:] = np.float32(np.nan).tobytes()
    base.write_bytes(data)
    (tmp_path / "out").mkdir()
    with pytest.raises(QuantNotMade):
        made(planned(base, tmp_path / "out", "Q4_0"))
    assert not list((tmp_path / "out").iterdir())


def test_a_draft_head_can_be_quantised_by_itself(tmp_path: Path) -> None:
    head = write_scripted_draft_gguf(tmp_path / "mtp-tiny-F32.gguf", {}, "Yes.")
    made(planned(head, tmp_path, "Q8_0"))
    quant = read_model(tmp_path / "mtp-tiny-Q8_0.gguf")
    assert quant.facts.draft_head_only
    assert quant.stated == "Q8_0"


def test_an_interrupt_from_the_keyboard_leaves_nothing_behind(tmp_path: Path) -> None:
    code = (
        "import sys, typer\n"
        "from quant.cli.make import register\n"
        "app = typer.Typer()\n"
        "register(app)\n"
        "app()\n"
    )
    options = ["--types", "Q8_0", "--requantise", "--json", "--threads", "1", "--out"]
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(smollm_path()), *options, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    while b'"working"' not in (line := child.stdout.readline()):
        assert line, "it ended before it worked"
    child.send_signal(signal.SIGINT)
    child.stdout.read()
    assert child.wait() != 0
    child.stdout.close()
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_cancelled_leaves_nothing_behind(base: Path, tmp_path: Path) -> None:
    cancel = threading.Event()
    events = make(planned(base, tmp_path, "Q8_0"), cancel)
    assert isinstance(next(events), Working)
    cancel.set()
    with pytest.raises(Cancelled):
        list(events)
    assert not list(tmp_path.iterdir())


def test_two_runs_do_not_write_the_same_file(base: Path, tmp_path: Path) -> None:
    plans = planned(base, tmp_path, "Q8_0")
    first = make(plans, NEVER)
    next(first)
    with pytest.raises(QuantNotMade, match="another run is making it"):
        made(plans)
    list(first)
    assert read_model(tmp_path / "tiny-Q8_0.gguf").stated == "Q8_0"


def test_a_killed_run_leaves_nothing_under_the_name_and_the_next_one_works(tmp_path: Path) -> None:
    base = smollm_path()
    code = (
        "import sys, threading\n"
        "from pathlib import Path\n"
        "from quant.making.make import make\n"
        "from quant.making.plan import plan\n"
        "from quant.making.target import FILE_TYPES, Recipe, parse_targets\n"
        "recipe, never = Recipe(requantise=True, threads=1), threading.Event()\n"
        "base, out = map(Path, sys.argv[1:])\n"
        "planned = plan(base, out, parse_targets('Q8_0'), recipe, 'refuse', never)\n"
        "for event in make(planned, never):\n"
        "    print(event, flush=True)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(base), str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()

    assert not list(tmp_path.glob("*.gguf"))
    recipe = Recipe(requantise=True, threads=2)
    # The killed run's worker holds the lock until it sees that its parent is gone.
    with (tmp_path / "SmolLM2-135M-Instruct-Q8_0.gguf.part").open("rb") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
    made(planned(base, tmp_path, "Q8_0", recipe))
    (quant,) = tmp_path.iterdir()
    assert read_model(quant).stated == "Q8_0"
