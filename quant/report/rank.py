"""The order of quants: by size and loss, never by name, and no order where the data show none."""

from __future__ import annotations

from dataclasses import dataclass

from quant.report.data import Comparison, QuantLoss


@dataclass(frozen=True, slots=True)
class Ranked:
    """A quant's place among those it was measured with.

    `number` is its number in tables and plots, by size; `place` by mean KLD, shared by quants that
    tie with the best one of the place. `on_front`: no quant is at most as large and loses less, or
    smaller and loses no more. `beaten_by` are the numbers of those that are and do.
    """

    number: int
    quant: QuantLoss
    place: int
    tied_with: tuple[int, ...]
    beaten_by: tuple[int, ...]

    @property
    def on_front(self) -> bool:
        """Whether the quant is on the Pareto front of size and loss."""
        return not self.beaten_by


def ranked(comparison: Comparison) -> tuple[Ranked, ...]:
    """All quants of a comparison, the largest file first."""
    by_size = sorted(comparison.quants, key=lambda one: (-one.file_size, one.kld.value, one.key))
    numbers = {one.key: number for number, one in enumerate(by_size, 1)}
    places = _places(comparison)
    return tuple(
        Ranked(
            number=numbers[one.key],
            quant=one,
            place=places[one.key],
            tied_with=tuple(
                numbers[other.key]
                for other in by_size
                if other.key != one.key and comparison.tied(one, other)
            ),
            beaten_by=tuple(
                numbers[other.key] for other in by_size if _beats(comparison, other, one)
            ),
        )
        for one in by_size
    )


def front(rows: tuple[Ranked, ...]) -> tuple[Ranked, ...]:
    """The Pareto front, from the smallest file to the largest."""
    return tuple(sorted((row for row in rows if row.on_front), key=lambda r: r.quant.file_size))


def _places(comparison: Comparison) -> dict[str, int]:
    """Places from 1 up. A place is opened by a quant that does not tie with the last opener."""
    by_loss = sorted(comparison.quants, key=lambda one: (one.kld.value, one.key))
    places: dict[str, int] = {}
    opener: QuantLoss | None = None
    for position, one in enumerate(by_loss, 1):
        if opener is not None and comparison.tied(opener, one):
            places[one.key] = places[opener.key]
        else:
            places[one.key], opener = position, one
    return places


def _beats(comparison: Comparison, winner: QuantLoss, loser: QuantLoss) -> bool:
    """Smaller or equal in both, and better in one: of a tie only the size counts."""
    if winner.key == loser.key:
        return False
    if comparison.tied(winner, loser) or winner.kld.value == loser.kld.value:
        return winner.file_size < loser.file_size
    return winner.file_size <= loser.file_size and winner.kld.value < loser.kld.value
