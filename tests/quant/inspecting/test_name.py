from dataclasses import replace

import pytest

from quant.inspecting.inspect import Inspection
from quant.inspecting.name import broken_promises, label_in
from veriloop_tui.engine.gguf.metadata import Metadata
from veriloop_tui.engine.gguf.sizes import read_sizes

PLAIN = Inspection(
    name="m-Q4_K_M",
    stated="Q4_K_M",
    architecture="llama",
    file_size=1,
    bpw_trunk=4.9,
    sizes=read_sizes(Metadata({}, {}, "llama"), ()),
)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("VeriLoop-E2-Q4_K_M", "Q4_K_M"),
        ("SmolLM2-135M-Instruct.Q4_1", "Q4_1"),
        ("model_iq2_xxs", "IQ2_XXS"),
        ("model-bf16", "BF16"),
        ("model-UD-Q4_K_XL", ""),
        ("model-Q8_0-Q4_0", ""),
        ("AQ8_0", ""),
        ("model", ""),
    ],
)
def test_the_label_in_a_name_is_a_whole_word_of_it(name: str, label: str) -> None:
    assert label_in(name) == label


def test_a_quant_that_is_what_it_says_needs_no_word() -> None:
    assert broken_promises(PLAIN) == ()


def test_a_quant_that_is_larger_than_its_name_is_pointed_out() -> None:
    # What the publisher's Q4_K_M of VeriLoop E2 has.
    (sentence,) = broken_promises(replace(PLAIN, bpw_trunk=5.84))
    assert sentence == "Q4_K_M promises about 4.89 BPW and it has 5.84, 19% more."


def test_a_quant_that_is_smaller_than_its_name_is_pointed_out() -> None:
    assert "less" in broken_promises(replace(PLAIN, bpw_trunk=3.9))[0]


def test_a_name_at_odds_with_the_header_is_pointed_out() -> None:
    sentences = broken_promises(replace(PLAIN, stated="Q8_0", bpw_trunk=8.5))
    assert sentences[0] == "Its name says Q4_K_M, its header Q8_0."
    assert "74% more" in sentences[1]


def test_a_name_without_a_label_is_held_against_the_header() -> None:
    assert "Q4_K_M promises" in broken_promises(replace(PLAIN, name="m", bpw_trunk=7))[0]
