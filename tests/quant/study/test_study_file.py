from pathlib import Path

import pytest

from quant.study.study_file import read_study
from veriloop_tui.errors import StudyInvalid

GOOD = """
base = "model-BF16.gguf"
quants = ["model-Q8_0.gguf", "model-Q4_K_M.gguf"]
corpora = ["prose", "wiki.txt"]
out = "report"
chunks = 7
floor = 24

[axes]
n_ctx = [512, 4096, 512]
kv = ["f16", "q8_0", ["q8_0", "q4_0"]]
flash_attention = ["on", "off"]
threads = [8]
"""


def test_a_study_is_read_with_paths_beside_its_file(tmp_path: Path) -> None:
    (tmp_path / "quant.toml").write_text(GOOD)
    found = read_study(tmp_path / "quant.toml")
    assert found.base == tmp_path / "model-BF16.gguf"
    assert found.quants[1] == tmp_path / "model-Q4_K_M.gguf"
    assert found.corpora == ("prose", str(tmp_path / "wiki.txt"))
    assert found.out == tmp_path / "report"
    assert (found.chunks, found.floor) == (7, 24)
    assert found.axes.n_ctx == (512, 4096)
    assert found.axes.kv == (("f16", "f16"), ("q8_0", "q8_0"), ("q8_0", "q4_0"))
    assert found.axes.flash_attention == ("on", "off")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GOOD.replace("chunks", "chunk"), "chunk"),
        (GOOD.replace('["on", "off"]', '["maybe"]'), "flash_attention"),
        (GOOD.replace("[8]", "[0]"), "threads"),
        (GOOD.replace("24", "20"), "floor"),
        ('base = "a.gguf"\nquants = []', "quants"),
        ('quants = ["a.gguf"]', "base"),
        ("base = ", "not TOML"),
        ("x" * ((1 << 20) + 1), "larger than 1 MiB"),
    ],
)
def test_what_is_no_study_is_refused_with_the_key(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "quant.toml").write_text(text)
    with pytest.raises(StudyInvalid, match=problem):
        read_study(tmp_path / "quant.toml")


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyInvalid):
        read_study(tmp_path / "missing.toml")
    (tmp_path / "quant.toml").write_bytes(b"base = '\xff'")
    with pytest.raises(StudyInvalid):
        read_study(tmp_path / "quant.toml")
