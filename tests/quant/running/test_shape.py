from hypothesis import given
from hypothesis import strategies as st

from quant.running.shape import Shape, cut, steps

sizes = st.integers(8, 300)


@given(sizes, sizes, sizes, st.integers(1, 6))
def test_steps_cover_each_position_once_and_keep_just_the_scored_ones(
    n_ctx: int, n_batch: int, n_ubatch: int, chunks: int
) -> None:
    shape = Shape(n_ctx, n_batch, n_ubatch)
    found = list(steps(shape, min(chunks, shape.sequences)))
    covered = [at for one in found for at in range(one.start, one.stop)]
    kept = [at for one in found for at in range(one.first_kept, one.first_kept + one.kept)]
    assert covered == list(range(n_ctx))
    assert kept == list(range(shape.first, n_ctx - 1))
    assert len(kept) == shape.rows


@given(sizes, sizes, sizes)
def test_no_step_is_larger_than_what_llama_cpp_computes_at_once(
    n_ctx: int, n_batch: int, n_ubatch: int
) -> None:
    shape = Shape(n_ctx, n_batch, n_ubatch)
    for count in {1, shape.sequences}:
        for one in steps(shape, count):
            assert (one.stop - one.start) * count <= max(n_ubatch, count)
            assert one.kept * count <= shape.step_rows


@given(st.integers(2, 40), sizes, sizes)
def test_groups_hold_each_chunk_once(chunks: int, n_ctx: int, n_batch: int) -> None:
    shape = Shape(n_ctx, n_batch, 64)
    groups = shape.groups(chunks)
    assert [chunk for group in groups for chunk in group] == list(range(chunks))
    assert all(len(group) <= shape.sequences for group in groups)


def test_a_text_needs_two_chunks_and_its_rest_is_left_out() -> None:
    shape = Shape(32, 64, 64)
    assert [cut(tokens, shape) for tokens in (63, 64, 100)] == [0, 2, 3]
    assert cut(1000, shape, 5) == 5
