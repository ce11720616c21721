from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.engine.fit_ground import allocated
from tests.engine.paper_gguf import Dense, Hybrid, write_paper
from veriloop_tui.engine.fit.host import cgroup_memory, host_device
from veriloop_tui.engine.fit.memory import Device
from veriloop_tui.engine.fit.plan import Fit, choose, loaded_by
from veriloop_tui.engine.fit.probe import confirmed, devices
from veriloop_tui.engine.gguf.facts import read_facts
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import EngineStartFailed

HOST = Device("CPU", "", "cpu", 1 << 40, 1 << 40)
HYBRID = Hybrid(width=256, feed_forward=512, blocks=4, state=64, groups=4, ranks=8)


def chosen(path: Path, wanted: LoadSettings) -> Fit:
    draft = read_facts(wanted.draft) if wanted.draft else None
    return choose(read_facts(path), draft, [HOST], wanted)


def test_the_machine_s_memory_is_the_first_device() -> None:
    found = devices()

    assert (found[0].name, found[0].kind) == ("CPU", "cpu")
    assert 0 < found[0].free <= found[0].total <= psutil.virtual_memory().total


def test_devices_that_are_not_wanted_are_left_out() -> None:
    assert [one.kind for one in devices(("NONE0",))] == ["cpu"]


@pytest.mark.parametrize("head", ["none", "beside", "inside"])
def test_llama_cpp_s_own_figures_are_those_of_the_load(tmp_path: Path, head: str) -> None:
    with_head = replace(HYBRID, blocks=5, head_blocks=1)
    path = write_paper(tmp_path / "m.gguf", with_head if head == "inside" else HYBRID)
    wanted = LoadSettings(path, n_ctx=4096, draft_max=4)
    if head == "beside":
        apart = write_paper(tmp_path / "mtp.gguf", replace(with_head, head_only=True))
        wanted = replace(wanted, draft=apart)

    fit = confirmed(chosen(path, wanted), wanted)

    assert fit.confirmed
    real = allocated(path, fit.plan, wanted.draft, own_head=head == "inside")
    assert fit.uses[0].total == pytest.approx(sum(real.values()), rel=0.01)


def test_a_header_without_weights_is_enough(tmp_path: Path) -> None:
    path = write_paper(tmp_path / "m.gguf", Dense(width=4096, feed_forward=14_336, blocks=32))
    wanted = LoadSettings(path, n_ctx=1024)

    fit = confirmed(chosen(path, wanted), wanted)

    # Twenty gigabytes that are a hole in a file.
    assert fit.uses[0].weights > 20 << 30
    assert path.stat().st_blocks < 1000


def test_a_model_that_llama_cpp_aborts_on_ends_the_child_only(tmp_path: Path) -> None:
    path = write_paper(tmp_path / "m.gguf", Dense())
    fit = chosen(path, LoadSettings(path))
    data = path.read_bytes()
    at = data.index(b"llama.block_count") + len("llama.block_count") + 4
    path.write_bytes(data[:at] + (9999).to_bytes(4, "little") + data[at + 4 :])

    with pytest.raises(EngineStartFailed):
        confirmed(fit, LoadSettings(path))


def test_a_model_that_llama_cpp_refuses_is_a_clear_error(tmp_path: Path) -> None:
    path = write_paper(tmp_path / "m.gguf", Dense())
    fit = chosen(path, LoadSettings(path))
    path.write_bytes(path.read_bytes()[:200])

    with pytest.raises(EngineStartFailed, match=r"llama\.cpp refuses it"):
        confirmed(fit, LoadSettings(path))


def test_settings_of_a_fit_load_what_was_planned(tmp_path: Path) -> None:
    path = write_paper(tmp_path / "m.gguf", HYBRID)
    wanted = LoadSettings(path, draft=Path("mtp.gguf"), type_k="q8_0")
    fit = chosen(path, replace(wanted, draft=None))

    load = loaded_by(fit, wanted)

    assert (load.n_ctx, load.parallel, load.gpu_layers) == (32_768, 1, 0)
    assert (load.draft, load.type_k, load.speculation) == (Path("mtp.gguf"), "q8_0", "auto")


def group(root: Path, limit: str, used: int, stat: str = "") -> None:
    root.mkdir(parents=True, exist_ok=True)
    (root / "memory.max").write_text(limit)
    (root / "memory.current").write_text(f"{used}\n")
    (root / "memory.stat").write_text(stat)


def test_a_container_s_limit_is_what_there_is(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/one/two\n")
    group(tmp_path, "max\n", 5)
    group(tmp_path / "one", "1000\n", 700, "anon 100\ninactive_file 300\n")
    group(tmp_path / "one" / "two", "800\n", 100)

    assert cgroup_memory(tmp_path, own) == [(600, 1000), (700, 800)]


def test_limits_of_the_older_kind_are_known_too(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("5:cpu:/x\n4:memory:/x\n")
    folder = tmp_path / "memory" / "x"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text("900\n")
    (folder / "memory.usage_in_bytes").write_text("1000\n")
    (folder / "memory.stat").write_text("total_inactive_file 50\n")

    assert cgroup_memory(tmp_path, own) == [(0, 900)]


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert cgroup_memory(tmp_path, tmp_path / "absent") == []
    assert host_device().free > 0
