from pathlib import Path

import pytest

from tests.quant.files import write_base
from tests.quant.study.small import around, run, study
from tests.scripted_gguf import write_random_gguf
from veriloop_tui.errors import VocabularyDiffers

BOS_KEY = b"tokenizer.ggml.add_bos_token"


def _longer(folder: Path, name: str = "longer.gguf") -> Path:
    return write_random_gguf(folder / name, "llama", 3, width=256, blocks=2, more_tokens=2)


def _replaced(path: Path, old: bytes, new: bytes) -> Path:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))
    return path


def _padded(path: Path) -> Path:
    for number in (b"0", b"1"):
        _replaced(path, b"more-" + number, b"<pad" + number + b">")
    return path


def test_tokens_that_only_fill_up_are_left_out_with_a_notice(tmp_path: Path) -> None:
    base, longer = write_base(tmp_path), _padded(_longer(tmp_path))
    for first, second in ((base, longer), (longer, base)):
        report = run(study(tmp_path, first, second), around(tmp_path))
        assert "those that only fill up are left out" in " ".join(report.notices)
        assert report.comparisons[0].quants[0].kld.value < 10


def test_other_tokens_that_one_has_more_are_refused_by_the_first_of_them(tmp_path: Path) -> None:
    base, longer = write_base(tmp_path), _longer(tmp_path)
    with pytest.raises(VocabularyDiffers, match=r"token \d+, 'more-0', is only in longer"):
        run(study(tmp_path, base, longer), around(tmp_path))
    with pytest.raises(VocabularyDiffers, match=r"'more-0', is only in the base"):
        run(study(tmp_path, longer, base), around(tmp_path))


def test_a_quant_with_another_bos_rule_is_measured_by_the_bases_with_a_warning(
    tmp_path: Path,
) -> None:
    base, other = write_base(tmp_path), write_base(tmp_path, "other.gguf")
    data = bytearray(other.read_bytes())
    at = data.index(BOS_KEY) + len(BOS_KEY) + 4
    data[at] ^= 1
    other.write_bytes(data)
    report = run(study(tmp_path, base, other), around(tmp_path))
    (notice,) = report.notices
    assert notice == "other has another rule for a first token (BOS); the base's is used."
    (found,) = report.comparisons
    assert found.quants[0].kld.value == found.floor
