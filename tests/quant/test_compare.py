import shutil
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from quant.compare import Measured, compare, join
from quant.corpora import Corpus
from quant.passes import Shape
from tests.quant.files import write_base
from tests.scripted_gguf import write_random_gguf
from veriloop_tui.errors import UsageError

SHAPE = Shape(n_ctx=32, n_batch=64, n_ubatch=64, threads=1)
TEXT = Corpus("words", "text", "A few words that a model reads. " * 40, False, ())


def _ignore(_done: int, _all: int, _found: Measured) -> None:
    pass


def test_a_base_loses_nothing_against_itself_beyond_the_packing(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    found = compare(base, [base], TEXT, SHAPE, 3, _ignore)
    scores = join(found.scores[0])
    assert scores.kld.shape == (3, 15)
    assert abs(scores.kld).max() < 1e-4
    assert (scores.kld == join(found.floor).kld).all()


def test_a_short_text_is_refused_with_its_length(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    with pytest.raises(UsageError, match="needs 64"):
        compare(base, [base], Corpus("one", "text", "word", False, ()), SHAPE, 0, _ignore)


def test_a_model_of_other_weights_loses_something(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    other = write_random_gguf(tmp_path / "other.gguf", "llama", 4, width=256, blocks=2)
    scores = join(compare(base, [other], TEXT, SHAPE, 2, _ignore).scores[0])
    assert scores.kld.mean() > 1e-3


def test_a_quant_with_nan_is_stopped_by_chunk_and_position_and_others_go_on(
    tmp_path: Path,
) -> None:
    base = write_base(tmp_path)
    broken = Path(shutil.copy(base, tmp_path / "broken.gguf"))
    reader = GGUFReader(broken, "r+")
    norm = next(one for one in reader.tensors if one.name == "output_norm.weight")
    norm.data[:] = np.nan
    reader.data.flush()
    found = compare(base, [broken, base], TEXT, SHAPE, 3, _ignore)
    assert found.problems == {0: "not finite in chunk 1 at position 16"}
    assert len(found.scores[1]) == 3


def test_another_vocabulary_is_refused_with_the_first_token_that_differs(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    other = tmp_path / "other.gguf"
    data = base.read_bytes()
    texts = GGUFReader(base).get_field("tokenizer.ggml.tokens")
    assert texts is not None
    word = str(texts.contents()[-1]).encode()
    at = data.index(word, data.index(b"tokenizer.ggml.tokens"))
    other.write_bytes(data[:at] + b"~" * len(word) + data[at + len(word) :])
    with pytest.raises(UsageError, match=r"token .* differs"):
        compare(base, [other], TEXT, SHAPE, 2, _ignore)
