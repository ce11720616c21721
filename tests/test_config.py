"""Settings: who wins, where each value came from, and what a workspace may not decide."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from veriloop_tui.config import DEFAULT_MODEL, WORKSPACE_FILE, load_settings, user_file
from veriloop_tui.errors import SettingsError


@pytest.fixture
def user(tmp_path: Path) -> Path:
    return tmp_path / "config" / "settings.toml"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_without_any_file_the_defaults_hold(user: Path, workspace: Path) -> None:
    settings = load_settings({}, {}, workspace, user)
    assert settings.model == DEFAULT_MODEL == "veriloop-e2:Q6_K"
    assert settings.sandbox == "best"
    assert settings.data_dir.is_absolute()
    assert set(settings.sources.values()) == {"default"}


def test_flag_beats_environment_beats_workspace_beats_user(user: Path, workspace: Path) -> None:
    write(
        user, 'model = "u"\nedit_format = "file"\ntemperature = 1\nattempts = 1\ntheme = "nord"\n'
    )
    write(workspace / WORKSPACE_FILE, 'model = "w"\nedit_format = "function"\ntemperature = 0.5\n')
    environ = {"VERILOOP_MODEL": "e", "VERILOOP_EDIT_FORMAT": "auto", "HOME": "/x"}
    settings = load_settings({"model": "f", "attempts": None}, environ, workspace, user)
    assert (settings.model, settings.sources["model"]) == ("f", "flag")
    assert (settings.edit_format, settings.sources["edit_format"]) == ("auto", "environment")
    assert (settings.temperature, settings.sources["temperature"]) == (0.5, "workspace")
    assert (settings.attempts, settings.sources["attempts"]) == (1, "user")
    assert (settings.theme, settings.sources["theme"]) == ("nord", "user")
    assert (settings.n_ctx, settings.sources["n_ctx"]) == (None, "default")


def test_numbers_in_the_environment_are_read_as_numbers(user: Path) -> None:
    environ = {"VERILOOP_N_CTX": "4096", "VERILOOP_TEMPERATURE": "0.2", "VERILOOP_GPU_LAYERS": "-1"}
    settings = load_settings({}, environ, None, user)
    assert (settings.n_ctx, settings.temperature, settings.gpu_layers) == (4096, 0.2, -1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sandbox", '"none"'),
        ("data_dir", '"/tmp/x"'),
        ("theme", '"nord"'),
        ("model", '"./evil.gguf"'),
        ("model", '"evil.GGUF"'),
        ("model", '"sub/evil"'),
        ("model", '"~/evil"'),
    ],
)
def test_a_workspace_may_not_loosen_or_load(
    user: Path, workspace: Path, key: str, value: str
) -> None:
    write(workspace / WORKSPACE_FILE, f"{key} = {value}\n")
    with pytest.raises(SettingsError) as caught:
        load_settings({}, {}, workspace, user)
    assert (caught.value.source, caught.value.key) == (WORKSPACE_FILE, key)


def test_a_workspace_may_name_a_published_model(user: Path, workspace: Path) -> None:
    write(workspace / WORKSPACE_FILE, 'model = "hf:owner/repo:Q4_K_M"\n')
    assert load_settings({}, {}, workspace, user).model == "hf:owner/repo:Q4_K_M"


@pytest.mark.parametrize(
    "line",
    [
        "model = 3",
        'model = ""',
        'sandbox = "off"',
        'edit_format = "diff"',
        "temperature = nan",
        "temperature = true",
        "n_ctx = 1",
        'threads = "4"',
        "attempts = 0",
        'data_dir = "relative"',
        "colour = 1",
    ],
)
def test_a_wrong_value_names_file_and_key(user: Path, line: str) -> None:
    write(user, line + "\n")
    with pytest.raises(SettingsError) as caught:
        load_settings({}, {}, None, user)
    assert (caught.value.source, caught.value.key) == (str(user), line.split()[0])
    assert caught.value.exit_code == 2


def test_a_wrong_environment_variable_is_named_in_full(user: Path) -> None:
    with pytest.raises(SettingsError, match="VERILOOP_SANDBOX"):
        load_settings({}, {"VERILOOP_SANDBOX": "off"}, None, user)


@pytest.mark.parametrize("content", [b"model = ", b"\xff", b"#" * 70_000])
def test_a_broken_file_is_named(user: Path, content: bytes) -> None:
    user.parent.mkdir()
    user.write_bytes(content)
    with pytest.raises(SettingsError, match=r"settings\.toml"):
        load_settings({}, {}, None, user)


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(user: Path, workspace: Path) -> None:
    os.mkfifo(workspace / WORKSPACE_FILE)
    assert load_settings({}, {}, workspace, user).sandbox == "best"


def test_the_users_file_is_in_the_configuration_folder() -> None:
    assert user_file().is_absolute()
    assert user_file().parts[-2:] == ("veriloop", "settings.toml")


def test_without_a_word_the_engine_speculates_and_loads_what_fits(user: Path) -> None:
    settings = load_settings({}, {}, None, user)
    assert (settings.server, settings.server_model, settings.server_key) == ("", "", "")
    assert (settings.draft, settings.draft_max, settings.speculation) == ("", 8, "auto")
    assert (settings.lookup, settings.parallel, settings.gpu_layers) == (True, None, None)
    assert (settings.type_k, settings.type_v, settings.flash_attention) == ("f16", "f16", "auto")
    assert (settings.devices, settings.split_mode, settings.tensor_split) == ((), "layer", ())


def test_the_engines_settings_come_from_every_layer(user: Path) -> None:
    write(user, 'type_k = "q8_0"\ndevices = ["CUDA0", "CUDA1"]\ntensor_split = [3, 1.5]\n')
    environ = {"VERILOOP_LOOKUP": "false", "VERILOOP_SPECULATION": "off", "VERILOOP_PARALLEL": "4"}
    flags = {"draft": "head.gguf", "draft_max": 3, "split_mode": "row"}
    settings = load_settings(flags, environ, None, user)
    assert (settings.type_k, settings.devices) == ("q8_0", ("CUDA0", "CUDA1"))
    assert settings.tensor_split == (3.0, 1.5)
    assert (settings.lookup, settings.speculation, settings.parallel) == (False, "off", 4)
    assert (settings.draft, settings.draft_max, settings.split_mode) == ("head.gguf", 3, "row")


def test_lists_on_the_command_line_have_commas(user: Path) -> None:
    settings = load_settings({"devices": "CUDA0, CUDA1", "tensor_split": "3,1"}, {}, None, user)
    assert (settings.devices, settings.tensor_split) == (("CUDA0", "CUDA1"), (3.0, 1.0))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("LOOKUP", "yes"),
        ("LOOKUP", "1"),
        ("LOOKUP", "True"),
        ("LOOKUP", ""),
        ("DRAFT_MAX", "17"),
        ("DRAFT_MAX", "0"),
        ("SPECULATION", "on"),
        ("TYPE_K", "q6_k"),
        ("TENSOR_SPLIT", "3,-1"),
        ("TENSOR_SPLIT", "0,0"),
        ("TENSOR_SPLIT", "nan"),
        ("DEVICES", "CUDA0,,CUDA1"),
        ("SERVER", "ftp://host"),
        ("SERVER", "host:8001"),
    ],
)
def test_a_wrong_engine_setting_in_the_environment_is_named(
    user: Path, key: str, value: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({}, {f"VERILOOP_{key}": value}, None, user)
    assert caught.value.key == f"VERILOOP_{key}"


@pytest.mark.parametrize("line", ["lookup = 1", 'lookup = "true"', "devices = [1]", "draft = 1"])
def test_a_wrong_engine_setting_in_the_users_file_is_named(user: Path, line: str) -> None:
    write(user, line + "\n")
    with pytest.raises(SettingsError) as caught:
        load_settings({}, {}, None, user)
    assert caught.value.key == line.split()[0]


@pytest.mark.parametrize(
    "line",
    [
        'server = "http://127.0.0.1:1"',
        'server_model = "m"',
        'server_key = "k"',
        'draft = "mtp.gguf"',
        "draft_max = 2",
        'speculation = "off"',
        "lookup = false",
        "parallel = 2",
        'type_k = "f32"',
        'flash_attention = "on"',
        'devices = "CUDA0"',
        'split_mode = "row"',
        "tensor_split = [1]",
        "gpu_layers = 1",
    ],
)
def test_a_workspace_may_not_choose_server_draft_or_devices(
    user: Path, workspace: Path, line: str
) -> None:
    write(workspace / WORKSPACE_FILE, line + "\n")
    with pytest.raises(SettingsError, match="a workspace may not set this"):
        load_settings({}, {}, workspace, user)


def test_a_servers_key_comes_from_the_environment_alone_and_is_not_shown(user: Path) -> None:
    settings = load_settings({}, {"VERILOOP_SERVER_KEY": "12345"}, None, user)
    assert settings.server_key == "12345"
    assert "12345" not in repr(settings)
    write(user, 'server_key = "12345"\n')
    with pytest.raises(SettingsError, match="VERILOOP_SERVER_KEY"):
        load_settings({}, {}, None, user)
    with pytest.raises(SettingsError, match="VERILOOP_SERVER_KEY"):
        load_settings({"server_key": "12345"}, {}, None, user.with_name("none"))


def test_a_name_of_digits_in_the_environment_stays_a_name(user: Path) -> None:
    assert load_settings({}, {"VERILOOP_SERVER_MODEL": "8"}, None, user).server_model == "8"
