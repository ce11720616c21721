"""From settings to what is loaded, asked and shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripted_gguf import write_random_gguf
from veriloop_tui import registry
from veriloop_tui.config import load_settings
from veriloop_tui.core.chat import Sampling
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import ModelNotFound, UsageError
from veriloop_tui.proposer.propose import DEFAULT_SAMPLING
from veriloop_tui.wiring.machine import Finding, examine
from veriloop_tui.wiring.running import draft_file, engine_settings, sampling, shown_model
from veriloop_tui.wiring.workspace import Location


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_random_gguf(tmp_path / "some-Q6_K.gguf", "llama", 7)


def located(tmp_path: Path, **flags: object) -> Location:
    settings = load_settings({"data_dir": tmp_path / "data", **flags}, {}, None, tmp_path / "none")
    return Location(tmp_path, settings, tmp_path / "data" / "one")


def test_the_settings_of_the_engine_reach_it(tmp_path: Path, model: Path) -> None:
    head = write_random_gguf(tmp_path / "mtp-some.gguf", "llama", 7)
    wanted = {
        "n_ctx": 512,
        "threads": 2,
        "gpu_layers": 3,
        "draft_max": 5,
        "speculation": "always",
        "lookup": False,
        "parallel": 4,
        "type_k": "q8_0",
        "type_v": "f32",
        "flash_attention": "off",
        "devices": ("CUDA0",),
        "split_mode": "row",
        "tensor_split": (3.0, 1.0),
    }
    location = located(tmp_path, model=str(model), draft=str(head), **wanted)
    assert engine_settings(location) == LoadSettings(model, head, **wanted)  # type: ignore[arg-type]


def test_without_a_word_nothing_is_decided_for_the_engine(tmp_path: Path, model: Path) -> None:
    assert engine_settings(located(tmp_path, model=str(model))) == LoadSettings(model)


def test_a_draft_head_can_be_switched_off_and_must_exist_if_named(
    tmp_path: Path, model: Path
) -> None:
    assert draft_file(located(tmp_path, model=str(model), draft="none")) is None
    with pytest.raises(ModelNotFound):
        draft_file(located(tmp_path, model=str(model), draft=str(tmp_path / "absent.gguf")))


def test_the_user_knows_better_than_the_registry_and_that_better_than_the_program() -> None:
    spec = registry.read_registry(registry.registry_file())["smollm2"]
    plain = load_settings({}, {}, None, Path("/none"))
    cold = load_settings({"temperature": 0.1}, {}, None, Path("/none"))
    assert sampling(plain, None) == DEFAULT_SAMPLING
    assert sampling(plain, spec).temperature == spec.sampling.temperature
    assert sampling(cold, spec).temperature == 0.1
    assert isinstance(sampling(cold, None), Sampling)


@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        ({"model": "smollm2"}, "smollm2"),
        ({"server": "http://localhost:8001/v1"}, "the model at http://localhost:8001"),
        ({"server": "https://h", "server_model": "m"}, "m at https://h:443"),
    ],
)
def test_the_model_is_shown_as_the_user_named_it(
    tmp_path: Path, flags: dict[str, object], shown: str
) -> None:
    assert shown_model(located(tmp_path, **flags).settings) == shown


def findings(location: Location) -> dict[str, Finding]:
    return {one.name: one for one in examine(location)}


def test_a_doctor_tells_of_model_and_draft_head(tmp_path: Path, model: Path) -> None:
    found = findings(located(tmp_path, model=str(model), draft=str(tmp_path / "absent.gguf")))
    assert (found["model"].ok, found["draft head"].ok) == (True, False)
    assert "Q6_K" in found["model"].found


def test_a_doctor_tells_of_a_server_that_is_not_there_or_not_allowed(tmp_path: Path) -> None:
    gone = findings(located(tmp_path, server="http://127.0.0.1:9"))["server"]
    assert not gone.ok
    assert "cannot be used" in gone.remedy
    far = findings(located(tmp_path, server="http://gpu.example:1"))["server"]
    assert "veriloop trust --server http://gpu.example:1" in far.remedy


def test_a_server_that_has_no_address_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        shown_model(located(tmp_path, server="http://").settings)
    assert not findings(located(tmp_path, server="http://"))["server"].ok
