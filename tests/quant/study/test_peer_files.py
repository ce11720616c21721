"""Files of base logits that llama-perplexity wrote for tiny random models: read, and written alike.

`python -m benchmarks.capture_perplexity` captured them, with what it printed against them.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quant.losses.logits_file import LogitsHeader, LogitsRows, read_header
from quant.losses.scoring import Packed, packed_width, unpack
from quant.report.data import Report
from quant.study.study import Axes, Study
from tests.quant.golden.printed import captured, here, ours, unlike
from tests.quant.golden.tiny import ODD, TINY, Tiny
from tests.quant.study.small import around, run
from veriloop_tui.errors import LogitsFileInvalid

GOLDEN = Path(__file__).parent.parent / "golden"
CAPTURED = captured("tiny.json")
SAME = here() == CAPTURED["system"]

each = pytest.mark.parametrize("tiny", TINY, ids=lambda tiny: tiny.name)


def _study(folder: Path, tiny: Tiny, logits: Path, *quants: Path) -> Study:
    return Study(
        base=tiny.write_base(folder),
        quants=quants,
        corpora=(str(tiny.write_text(folder)),),
        axes=Axes(n_ctx=(tiny.n_ctx,), threads=(2,)),
        n_batch=tiny.n_batch,
        n_ubatch=tiny.n_ubatch,
        logits=logits,
        speeds=False,
    )


def _compare(folder: Path, tiny: Tiny, logits: Path, *quants: Path) -> Report:
    return run(_study(folder, tiny, logits, *quants), around(folder))


def _rows(path: Path) -> tuple[LogitsHeader, Packed]:
    header = read_header(path)
    found = np.empty((header.whole, header.rows, packed_width(header.vocabulary)), np.uint16)
    with LogitsRows(path, header, write=False) as file:
        for chunk in range(header.whole):
            file.get(chunk, 0, found[chunk])
    return header, found


@each
def test_a_file_of_llama_perplexity_is_read_whole(tmp_path: Path, tiny: Tiny) -> None:
    header, rows = _rows(GOLDEN / f"{tiny.name}.kld")
    assert (header.n_ctx, header.vocabulary) == (tiny.n_ctx, 258 + tiny.more_tokens)
    assert (header.whole, len(header.tokens)) == (tiny.chunks, tiny.chunks)
    # A token is a byte here. BOS comes once, before the text; chunks begin with the text's own.
    tokens = header.tokens.reshape(-1)[tiny.bos :]
    assert bytes(tokens.tolist()) == tiny.write_text(tmp_path).read_bytes()[: tokens.size]
    chances = np.exp(unpack(rows.reshape(-1, rows.shape[-1]), header.vocabulary)).sum(axis=1)
    assert chances == pytest.approx(1, abs=1e-3)


@each
def test_the_file_we_write_is_that_of_llama_perplexity(tmp_path: Path, tiny: Tiny) -> None:
    _compare(tmp_path, tiny, tmp_path / "ours.kld")
    mine, theirs = tmp_path / "ours.kld", GOLDEN / f"{tiny.name}.kld"
    if SAME:
        assert mine.read_bytes() == theirs.read_bytes()
        return
    # Where llama.cpp adds up in another order, its logits and so its rows are a little apart.
    (header, rows), (expected, wanted) = _rows(mine), _rows(theirs)
    assert np.array_equal(header.tokens, expected.tokens)
    apart = np.abs(rows[..., 4:].astype(np.int32) - wanted[..., 4:])
    assert apart.max() <= 0.01 * 65535


@each
def test_a_quant_is_held_against_a_file_of_llama_perplexity(tmp_path: Path, tiny: Tiny) -> None:
    logits = GOLDEN / f"{tiny.name}.kld"
    before = logits.read_bytes()
    found = _compare(tmp_path, tiny, logits, tiny.write_quant(tmp_path))
    (quant,) = found.comparisons[0].quants
    assert not unlike(ours(quant), CAPTURED["models"][tiny.name]["quant"], SAME)
    assert logits.read_bytes() == before


def test_a_file_of_another_text_vocabulary_or_length_is_refused(tmp_path: Path) -> None:
    theirs = GOLDEN / "odd.kld"
    wanted = _study(tmp_path, ODD, theirs, ODD.write_quant(tmp_path))
    text = ODD.write_text(tmp_path).read_text("utf-8")
    other, longer = tmp_path / "other.txt", tmp_path / "longer.txt"
    cut, damaged = tmp_path / "cut.kld", tmp_path / "damaged.kld"
    other.write_text(text.replace("short", "small"), "utf-8")
    longer.write_text(text * 2, "utf-8")
    cut.write_bytes(theirs.read_bytes()[:40_000])
    start = read_header(theirs).start
    damaged.write_bytes(theirs.read_bytes()[:start] + b"\xff" * (theirs.stat().st_size - start))
    for study, problem in (
        (replace(wanted, logits=GOLDEN / "even.kld"), "a vocabulary of 258, not 259"),
        (replace(wanted, axes=Axes(n_ctx=(16,), threads=(2,))), "n_ctx 32, not 16"),
        (replace(wanted, corpora=(str(other),)), "differs in chunk 2 at position 9"),
        (replace(wanted, corpora=(str(longer),)), "14 chunks are wanted and 7 are whole"),
        (replace(wanted, logits=damaged), r"chunk \d is damaged"),
        (replace(wanted, logits=cut), "7 chunks are wanted and 4 are whole"),
    ):
        with pytest.raises(LogitsFileInvalid, match=problem):
            run(study, around(tmp_path))
    (fewer,) = run(replace(wanted, chunks=3), around(tmp_path)).comparisons
    assert fewer.chunks == 3
