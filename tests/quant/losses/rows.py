"""Scoring of made-up rows, as the processes of models do it."""

import numpy as np

from quant.losses.scoring import FLOOR, Packed, Scorer, Tokens, packed_width
from quant.losses.statistics import Scores, Values


def logits(seed: int, rows: int, vocabulary: int) -> Values:
    """Rows of a bell curve; several tokens may be likely."""
    return np.random.default_rng(seed).normal(0, 4, (rows, vocabulary)).astype(np.float32)


def pack(rows: Values, floor: float = FLOOR) -> Packed:
    """Rows packed."""
    count, vocabulary = rows.shape
    packed = np.zeros((count, packed_width(vocabulary)), np.uint16)
    scorer = Scorer(vocabulary)
    scorer.pack(rows, scorer.log_sums(rows), packed, floor)
    return packed


def score(rows: Values, packed: Packed, targets: Tokens) -> Scores:
    """The losses of rows as those of one chunk."""
    scorer = Scorer(rows.shape[1])
    return Scores(*scorer.score(rows, scorer.log_sums(rows), packed, targets)[:, None, :])
