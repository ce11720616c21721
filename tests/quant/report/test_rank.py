from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from quant.report.data import Comparison
from quant.report.rank import front, ranked
from quant.report.text import place, verdict
from tests.quant.made_up import comparison, loss

comparisons = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from([0.1, 0.2, 0.3, 0.4])), max_size=6
).flatmap(
    lambda pairs: st.builds(
        lambda ties: comparison(
            *(loss(str(at), size, kld) for at, (size, kld) in enumerate(pairs)), ties=ties
        ),
        st.lists(
            st.sampled_from([(str(a), str(b)) for a, b in combinations(range(len(pairs)), 2)])
            if len(pairs) > 1
            else st.nothing(),
            unique=True,
        ),
    )
)


@given(comparisons)
def test_the_front_is_what_no_other_quant_beats(of: Comparison) -> None:
    """Beaten: something is smaller and no worse, or as small and better; a tie is not worse."""
    rows = ranked(of)
    for row in rows:
        mine = row.quant
        beaten = any(
            (
                other.file_size < mine.file_size
                and (other.kld.value <= mine.kld.value or of.tied(other, mine))
            )
            or (
                other.file_size == mine.file_size
                and other.kld.value < mine.kld.value
                and not of.tied(other, mine)
            )
            for other in of.quants
            if other.key != mine.key
        )
        assert row.on_front == (not beaten)
    assert [row.quant.file_size for row in front(rows)] == sorted(
        row.quant.file_size for row in rows if row.on_front
    )


@given(comparisons)
def test_a_better_place_means_a_smaller_loss(of: Comparison) -> None:
    rows = ranked(of)
    for first, second in combinations(rows, 2):
        if first.place < second.place:
            assert first.quant.kld.value <= second.quant.kld.value
    assert sorted(row.number for row in rows) == list(range(1, len(rows) + 1))
    assert not rows or min(row.place for row in rows) == 1


@given(comparisons, st.permutations(range(6)))
def test_names_do_not_change_the_order(of: Comparison, order: list[int]) -> None:
    renamed = Comparison(
        **{field: getattr(of, field) for field in Comparison.__slots__ if field != "quants"},
        quants=tuple(
            loss(one.key, one.file_size // 2**20, one.kld.value, name=f"name-{order[at]}")
            for at, one in enumerate(of.quants)
        ),
    )
    assert [row.quant.key for row in ranked(renamed)] == [row.quant.key for row in ranked(of)]


def test_a_chain_of_ties_does_not_make_the_best_and_the_worst_equal() -> None:
    of = comparison(
        loss("a", 3, 0.10), loss("b", 2, 0.11), loss("c", 1, 0.12), ties=[("a", "b"), ("b", "c")]
    )
    assert {row.quant.key: row.place for row in ranked(of)} == {"a": 1, "b": 1, "c": 3}


def test_ties_and_the_front_are_told_in_words() -> None:
    rows = ranked(
        comparison(loss("a", 30, 0.1), loss("b", 20, 0.11), loss("c", 25, 0.5), ties=[("b", "a")])
    )
    assert [place(row) for row in rows] == ["1 (tie with 3)", "3", "1 (tie with 1)"]
    assert [verdict(row) for row in rows] == ["no: 3", "no: 3", "yes"]
