"""From lists of files to quants and draft heads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.registry import RepoFile, choices, quant_of


def files(*names: str) -> list[RepoFile]:
    return [RepoFile(name, 100 + number) for number, name in enumerate(names)]


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("VeriLoop-E2-Q6_K.gguf", "Q6_K"),
        ("qwen2.5-coder-7b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("Qwen3.6-35B-A3B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("BF16/model-BF16-00001-of-00003.gguf", "BF16"),
        ("IQ1_M/x.IQ1_M.gguf", "IQ1_M"),
        ("model.gguf", ""),
        ("Q6_K/model.gguf", ""),
    ],
)
def test_the_quant_is_what_the_name_says_and_nothing_where_it_says_nothing(
    name: str, quant: str
) -> None:
    assert quant_of(name) == quant


def test_models_draft_heads_and_what_is_neither_are_told_apart() -> None:
    listing = choices(
        files(
            "E2-Q6_K.gguf",
            "mtp-E2-Q8_0.gguf",
            "mmproj-E2-F16.gguf",
            "E2.imatrix.gguf",
            "README.md",
            "heads/speculator-F16.gguf",
        ),
        drafts=["speculator-*.gguf"],
    )

    assert [one.quant for one in listing.models] == ["Q6_K"]
    assert sorted(one.quant for one in listing.drafts) == ["F16", "Q8_0"]


def test_shards_are_one_choice_and_only_whole_if_none_is_missing() -> None:
    names = [f"BF16/m-BF16-{number:05d}-of-00003.gguf" for number in (3, 1, 2)]

    (whole,) = choices(files(*names)).models
    (part,) = choices(files(*names[:2])).models

    assert whole.whole
    assert whole.files[0].name == "BF16/m-BF16-00001-of-00003.gguf"
    assert whole.size == 100 + 101 + 102
    assert not part.whole


def test_the_smallest_comes_first_whatever_its_name() -> None:
    listing = choices([RepoFile("m-Q8_0.gguf", 5), RepoFile("m-Q2_K.gguf", 9)])

    assert [one.quant for one in listing.models] == ["Q8_0", "Q2_K"]


@given(st.lists(st.text(max_size=30).map(lambda stem: f"{stem}.gguf"), unique=True, max_size=8))
def test_no_name_breaks_the_sorting_and_no_file_is_counted_twice(names: list[str]) -> None:
    listing = choices(files(*names))
    seen = [file.name for one in (*listing.models, *listing.drafts) for file in one.files]

    assert len(seen) == len(set(seen))
    assert set(seen) <= set(names)
