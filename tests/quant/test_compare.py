from pathlib import Path

import pytest

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
