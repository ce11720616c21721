from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quant.making.target import (
    FILE_TYPES,
    Order,
    Override,
    Recipe,
    parse_override,
    parse_targets,
    tensor_type,
)
from veriloop_tui.errors import UsageError


def test_types_are_read_in_any_case_and_by_their_short_names() -> None:
    assert [one.label for one in parse_targets("q8_0, Q4_K,iq2_xs,bf16")] == [
        "Q8_0",
        "Q4_K_M",
        "IQ2_XS",
        "BF16",
    ]


@pytest.mark.parametrize("text", ["", " , ", "Q9_9", "Q8_0,Q8_0", "Q4_K,Q4_K_M", "GUESSED"])
def test_what_is_no_list_of_types_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_targets(text)


def test_the_numbers_are_llama_cpp_s() -> None:
    # include/llama.h, enum llama_ftype
    expected = {"F32": 0, "F16": 1, "Q8_0": 7, "Q4_K_M": 15, "Q6_K": 18, "IQ1_M": 31, "BF16": 32}
    assert expected.items() <= FILE_TYPES.items()


def test_an_override_may_hold_an_equals_sign() -> None:
    assert parse_override("a=b=Q6_K") == Override("a=b", "Q6_K")


@pytest.mark.parametrize(
    "text", ["attn_v", "=Q8_0", "attn_v=", "attn_v=Q4_K_M", "(=Q8_0", "a\0=F16"]
)
def test_what_is_no_override_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_override(text)


@pytest.mark.parametrize("text", ["I32", "Q4_K_M", ""])
def test_what_tensors_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        tensor_type(text)


@given(
    st.builds(
        Order,
        base=st.text(min_size=1, alphabet=st.characters(exclude_characters="/\0")).map(Path),
        output=st.just(Path("out.gguf")),
        number=st.integers(0, 40),
        recipe=st.builds(
            Recipe,
            overrides=st.lists(
                st.builds(Override, st.text(), st.sampled_from(["Q8_0", "F16"]))
            ).map(tuple),
            imatrix=st.sampled_from([None, Path("a b.dat")]),
        ),
        dry_run=st.booleans(),
        buffer=st.integers(0, 2**40),
    )
)
def test_an_order_comes_back_from_its_json(order: Order) -> None:
    assert Order.from_json(order.to_json()) == order
