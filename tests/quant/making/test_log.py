from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from quant.making.log import (
    Failed,
    FellBack,
    ImatrixNeeded,
    LogReader,
    Step,
    TensorBegun,
    TensorDone,
    Unweighted,
    from_line,
    to_line,
)

# The words are those of llama.cpp (src/llama-quant.cpp), the model is made up.
LOG = """\
llama_model_loader: loaded meta data with 24 key-value pairs and 4 tensors from tiny.gguf
warning: blk.0.attn_k.weight                  - ncols     64 not divisible by 256 (required for \
type    q4_K) -> falling back to    q5_0
warning: odd.weight                           - ncols     17 not divisible by 256 (required for \
type    q4_K) (WARNING: must use F16 due to unusual shape) -> falling back to     f16
[   1/   4] output_norm.weight                   - [   64,     1,     1,     1], type =    f32, \
size =    0.000 MiB
[   2/   4] blk.0.attn_k.weight                  - [   64,    64,     1,     1], type =    f16, \
converting to q5_0 .. size =     0.01 MiB ->     0.00 MiB
[   3/   4] blk.0.attn_q.weight                  - [   64,    64,     1,     1], type =    f16, \

====== llama_model_quantize_impl: did not find weights for blk.0.attn_q.weight
converting to q4_K .. size =     0.01 MiB ->     0.00 MiB
[   4/   4] blk.0.ffn_up.weight                  - [   64,   128,     1,     1], type =   bf16, \
size =     0.02 MiB ->     0.00 MiB (q4_K)
llama_model_quantize_impl: WARNING: dry run completed successfully, but actually completing this \
quantization will require an imatrix!
llama_model_quantize: failed to quantize: requantizing from type q8_0 is disabled
"""
STEPS: list[Step] = [
    FellBack("blk.0.attn_k.weight", "Q5_0"),
    FellBack("odd.weight", "F16"),
    TensorBegun(1, 4, "output_norm.weight"),
    TensorDone(1, 4, "output_norm.weight", "F32", "F32"),
    TensorBegun(2, 4, "blk.0.attn_k.weight"),
    TensorDone(2, 4, "blk.0.attn_k.weight", "F16", "Q5_0"),
    TensorBegun(3, 4, "blk.0.attn_q.weight"),
    Unweighted("blk.0.attn_q.weight"),
    TensorDone(3, 4, "blk.0.attn_q.weight", "F16", "Q4_K"),
    TensorBegun(4, 4, "blk.0.ffn_up.weight"),
    TensorDone(4, 4, "blk.0.ffn_up.weight", "BF16", "Q4_K"),
    ImatrixNeeded(),
    Failed("requantizing from type q8_0 is disabled"),
]


@given(st.sets(st.integers(0, len(LOG))))
def test_the_steps_do_not_depend_on_how_the_log_is_cut(cuts: set[int]) -> None:
    reader = LogReader()
    edges = [0, *sorted(cuts), len(LOG)]
    pieces = [LOG[a:b] for a, b in pairwise(edges)]
    assert [step for piece in pieces for step in reader.feed(piece)] == STEPS


def test_a_tensor_is_told_of_before_it_is_done() -> None:
    reader = LogReader()
    head = LOG[LOG.index("[   2/") : LOG.index("converting to q5_0")]
    assert list(reader.feed(head)) == [TensorBegun(2, 4, "blk.0.attn_k.weight")]


@given(st.text(), st.lists(st.integers(0, 40), max_size=5))
def test_any_other_text_is_no_step_and_does_no_harm(text: str, cuts: list[int]) -> None:
    reader = LogReader()
    for piece in (text[:cut] for cut in cuts):
        list(reader.feed(piece))
    list(reader.feed("\n"))
    assert [step for step in reader.feed(LOG) if isinstance(step, TensorDone)] == [
        step for step in STEPS if isinstance(step, TensorDone)
    ]


def test_a_step_comes_back_from_its_line() -> None:
    assert [from_line(to_line(step)) for step in STEPS] == STEPS
