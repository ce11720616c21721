import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.ground import VERILOOP
from tests.engine.paper_gguf import Dense, Hybrid, write_paper
from tests.engine.range_server import Files
from tests.engine.range_server import serving as serving_files
from tests.registry.hub_server import REPO, Hub, serving

HYBRID = Hybrid(blocks=4, vocabulary=300)
HEAD = replace(HYBRID, blocks=5, head_blocks=1, head_only=True)


class Shell:
    """Someone at a shell, with a home of their own."""

    def __init__(self, home: Path, **extra: str) -> None:
        self.environment = os.environ | {
            "HOME": str(home),
            "HF_HOME": str(home / "hf"),
            "XDG_CONFIG_HOME": str(home),
            **extra,
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(VERILOOP), "models", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def json(self, *arguments: str) -> dict[str, Any]:
        done = self.run(*arguments, "--json")
        assert done.returncode in (0, 1), done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = tmp_path / "published"
    folder.mkdir()
    model = write_paper(folder / "m.gguf", HYBRID).read_bytes()
    head = write_paper(folder / "h.gguf", HEAD).read_bytes()
    files = {"tiny-Q4_0.gguf": model, "tiny-Q8_0.gguf": model, "mtp-tiny-F16.gguf": head}
    with serving(Hub(files)) as running:
        yield running


def test_a_model_by_name_is_one_screen_sizes_first(shell: Shell) -> None:
    done = shell.run("inspect", "smollm2")

    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert lines[0].startswith("size       93.8 MiB, 5.74 bits per weight")
    assert "Q4_1" in lines[1]
    assert "30 with full attention" in done.stdout
    assert "8,192 tokens, 49,152 in the vocabulary" in done.stdout
    assert "sha256 872be49dbb638044" in done.stdout
    assert len(lines) <= 24


def test_a_model_s_facts_as_json(shell: Shell, tmp_path: Path) -> None:
    model = Dense("qwen3moe", experts=8, experts_used=2, expert_width=32, window=0)
    path = write_paper(tmp_path / "m.gguf", model)

    found = shell.json("inspect", str(path))

    assert found["sizes"]["experts"] == 8
    assert found["bpw"] == 32
    assert found["remote"] is False
    assert found["unloadable"] == ""
    assert "chat_template" not in found


def test_what_cannot_be_loaded_is_shown_with_the_reason(shell: Shell, tmp_path: Path) -> None:
    path = write_paper(tmp_path / "m.gguf", replace(Dense(), heads=3, kv_heads=2))

    done = shell.run("inspect", str(path))

    assert done.returncode == 0
    assert "warning    it cannot be loaded: its 3 attention heads" in done.stdout


def test_a_draft_head_is_shown_as_what_it_is(shell: Shell, tmp_path: Path) -> None:
    done = shell.run("inspect", str(write_paper(tmp_path / "mtp.gguf", HEAD)))

    assert "1 layers (MTP)" in done.stdout
    assert "give it beside its model" in done.stdout
    assert "warning" not in done.stdout


def test_a_suspicious_template_is_a_warning(shell: Shell, tmp_path: Path) -> None:
    import gguf

    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_chat_template("{{ ''.__class__ }}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()

    done = shell.run("inspect", str(tmp_path / "m.gguf"))

    assert "warning    the chat template: it reaches for Python's insides" in done.stdout


def test_a_file_that_is_no_model_is_one_sentence_and_exit_code_4(
    shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "m.gguf").write_bytes(b"no" * 100)

    done = shell.run("inspect", str(tmp_path / "m.gguf"))

    assert done.returncode == 4
    assert len(done.stderr.splitlines()) == 1
    assert "not a GGUF file" in done.stderr


def test_a_model_on_a_server_is_inspected_and_fitted_before_it_is_downloaded(
    shell: Shell, tmp_path: Path
) -> None:
    folder = tmp_path / "served"
    folder.mkdir()
    write_paper(folder / "m.gguf", Dense(width=2048, feed_forward=8192, blocks=24))
    with serving_files(Files(folder)) as files:
        seen = shell.json("inspect", f"{files.url}/m.gguf")
        fitted = shell.json("fit", f"{files.url}/m.gguf", "--n-ctx", "1024")

    assert seen["remote"] is True
    assert seen["file_size"] > 4 << 30
    assert fitted["by_llama_cpp"] is True
    assert fitted["uses"][0]["weights"] > 4 << 30
    assert fitted["plan"]["n_ctx"] == 1024
    assert files.sent < 4 << 20


def test_a_model_on_the_hub_is_inspected_without_fetching_it(hub: Hub, tmp_path: Path) -> None:
    shell = Shell(tmp_path, HF_ENDPOINT=hub.url, HF_HUB_DISABLE_XET="1")

    found = shell.json("inspect", f"hf:{REPO}:Q8_0")

    assert found["architecture"] == "qwen35"
    assert found["path"].endswith("/tiny-Q8_0.gguf")
    assert found["remote"] is True


def test_a_quant_that_the_hub_does_not_have_is_said(hub: Hub, tmp_path: Path) -> None:
    shell = Shell(tmp_path, HF_ENDPOINT=hub.url, HF_HUB_DISABLE_XET="1")

    done = shell.run("inspect", f"hf:{REPO}:Q2_K")

    assert done.returncode == 2
    assert "its repository offers Q4_0, Q8_0" in done.stderr


def test_a_draft_head_of_the_hub_counts_in_a_fit(hub: Hub, tmp_path: Path) -> None:
    shell = Shell(tmp_path, HF_ENDPOINT=hub.url, HF_HUB_DISABLE_XET="1")

    found = shell.json("fit", f"hf:{REPO}:Q8_0", "--draft", f"hf:{REPO}")

    assert found["draft_head"] is True
    assert found["by_llama_cpp"] is True


def test_a_fit_says_yes_or_no_first_and_what_goes_where(shell: Shell) -> None:
    done = shell.run("fit", "smollm2")

    assert done.returncode == 0
    assert done.stdout.startswith("fits       93.8 MiB, 5.74 bits per weight")
    assert "weights 92.1 MiB, context 180.0 MiB, computing" in done.stdout
    assert "as llama.cpp reserves it" in done.stdout
    assert "8,192 in f16" in done.stdout


def test_what_does_not_fit_is_exit_code_1_and_says_what_is_missing(
    shell: Shell, tmp_path: Path
) -> None:
    huge = Dense(width=16_384, feed_forward=65_536, heads=128, head=128, blocks=80)
    path = write_paper(tmp_path / "m.gguf", huge)

    done = shell.run("fit", str(path))

    assert done.returncode == 1
    assert done.stdout.startswith("too large")
    assert "are missing; take a smaller quant or model" in done.stdout


def test_a_head_of_another_model_is_left_out_with_the_reason(shell: Shell, tmp_path: Path) -> None:
    model = write_paper(tmp_path / "m.gguf", HYBRID)
    head = write_paper(tmp_path / "h.gguf", replace(HEAD, vocabulary=301))

    found = shell.json("fit", str(model), "--draft", str(head), "--type-k", "q8_0")

    assert found["draft_head"] is False
    assert "its vocabulary is 301, the model's is 300" in found["notices"][0]
    assert found["plan"]["type_k"] == "q8_0"


def test_a_device_that_is_not_there_is_refused(shell: Shell) -> None:
    done = shell.run("fit", "smollm2", "--devices", "NOSUCH0")

    assert done.returncode == 2
    assert "no device 'NOSUCH0' here" in done.stderr


def test_settings_that_mean_nothing_are_refused(shell: Shell) -> None:
    done = shell.run("fit", "smollm2", "--type-k", "q9_9")

    assert done.returncode == 2
    assert "q9_9" in done.stderr or "type_k" in done.stderr
