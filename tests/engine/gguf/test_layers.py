from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.paper_gguf import Dense, Hybrid, Value, write_paper
from veriloop_tui.engine.gguf.facts import GGUFFacts, check_draft, check_loadable, read_facts
from veriloop_tui.engine.gguf.layers import read_layers
from veriloop_tui.engine.gguf.metadata import Metadata
from veriloop_tui.engine.gguf.read import Tensor
from veriloop_tui.errors import DraftRefused, ModelFileInvalid


def facts_of(path: Path, model: Dense | Hybrid, **more: Value) -> GGUFFacts:
    values = {key.replace("__", "."): value for key, value in more.items()}
    return read_facts(write_paper(path / "m.gguf", model, more=values))


def kinds(facts: GGUFFacts) -> str:
    """f: full attention, s: sliding, r: recurrent, -: keeps nothing; a draft head in capitals."""
    found = ""
    for block in facts.layers.blocks:
        one = (
            "r" if block.state_width else "s" if block.sliding else "f" if block.key_width else "-"
        )
        found += one.upper() if block.draft else one
    return found


def test_plain_attention_keeps_keys_and_values_in_every_block(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, Dense(heads=4, kv_heads=2, head=16))

    assert kinds(facts) == "ffff"
    assert {(block.key_width, block.value_width) for block in facts.layers.blocks} == {(32, 32)}
    assert not facts.layers.recurrent


def test_every_sixth_block_of_gemma3_sees_everything(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, Dense("gemma3", blocks=13, window=512))

    assert kinds(facts) == "sssssfsssssfs"
    assert facts.layers.window == 512


@pytest.mark.parametrize(
    ("pattern", "expected"), [(3, "ssfs"), ([True, False, False, True], "sffs")]
)
def test_a_stated_pattern_of_windows_counts(tmp_path: Path, pattern: Value, expected: str) -> None:
    model = Dense("gemma3", window=512)

    facts = facts_of(tmp_path, model, attention__sliding_window_pattern=pattern)

    assert kinds(facts) == expected


def test_a_hybrid_is_recurrent_but_for_every_fourth_block(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, Hybrid(blocks=9, head_blocks=1, state=16, groups=2, ranks=4))

    assert kinds(facts) == "rrrfrrrfF"
    # (kernel - 1) (inner + 2 groups state) + state inner, with inner = state ranks
    assert facts.layers.blocks[0].state_width == 3 * (64 + 64) + 16 * 64
    assert facts.layers.recurrent
    assert len(facts.layers.trunk) == 8


def test_a_draft_head_alone_keeps_only_its_own_block(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, Hybrid(blocks=5, head_blocks=1, head_only=True))

    assert kinds(facts) == "----F"
    assert facts.draft_head_only
    assert not facts.layers.recurrent


def layers(architecture: str, values: Mapping[str, int], *names: str) -> str:
    """Widths of a model's blocks that are told by metadata and names of tensors alone."""
    meta = Metadata(
        {f"{architecture}.{key}": value for key, value in values.items()}, {}, architecture
    )
    found = read_layers(meta, [Tensor(name, (1,), 0, 0) for name in names])
    return " ".join(f"{one.key_width},{one.value_width},{one.state_width}" for one in found.blocks)


BASE = {
    "block_count": 2,
    "embedding_length": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
}


def test_head_widths_follow_from_the_model_s_where_none_are_stated() -> None:
    assert layers("llama", BASE, "blk.0.attn_k.weight", "blk.1.attn_k.weight") == "32,32,0 32,32,0"


def test_latent_attention_keeps_no_values() -> None:
    values = BASE | {
        "attention.head_count_kv": 1,
        "attention.key_length": 576,
        "attention.value_length": 512,
        "attention.key_length_mla": 192,
    }

    assert layers("deepseek2", values, "blk.0.attn_kv_a_mqa.weight") == "576,0,0 0,0,0"


def test_blocks_that_share_an_earlier_one_s_keys_keep_none() -> None:
    values = BASE | {"attention.shared_kv_layers": 1}

    found = layers("gemma3n", values, "blk.0.attn_k.weight", "blk.1.attn_k.weight")

    assert found == "32,32,0 0,0,0"


def test_both_kinds_in_one_block_count_both() -> None:
    values = BASE | {"ssm.conv_kernel": 4, "ssm.inner_size": 8, "ssm.state_size": 2}

    found = layers("falcon-h1", values, "blk.0.attn_k.weight", "blk.0.ssm_in.weight")

    assert found == "32,32,40 0,0,0"


@pytest.mark.parametrize(
    ("architecture", "values", "name", "width"),
    [
        ("rwkv7", {"wkv.head_size": 64}, "time_mix_r.weight", 64 * (2 + 64)),
        ("lfm2", {"shortconv.l_cache": 3}, "shortconv.conv.weight", 64 * 2),
        ("kimi-linear", {"kda.head_dim": 8, "ssm.conv_kernel": 4}, "ssm_a", 3 * 3 * 32 + 8 * 8 * 4),
        (
            "mamba",
            {"ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": 16},
            "ssm_in.weight",
            3 * 128 + 16 * 128,
        ),
    ],
)
def test_recurrent_states_have_the_width_of_their_architecture(
    architecture: str, values: dict[str, int], name: str, width: int
) -> None:
    assert layers(architecture, BASE | values, f"blk.0.{name}").startswith(f"0,0,{width} ")


def test_counts_for_too_few_blocks_are_refused(tmp_path: Path) -> None:
    model = Dense(blocks=4)

    with pytest.raises(ModelFileInvalid, match="2 of 4 blocks"):
        facts_of(tmp_path, model, attention__head_count_kv=[2, 2])


def test_a_mixture_of_experts_reads_a_share_of_its_bytes(tmp_path: Path) -> None:
    model = Dense("qwen3moe", experts=8, experts_used=2, expert_width=32, tied=True)
    facts = facts_of(tmp_path, model)
    experts = 4 * 3 * 8 * 32 * 64  # blocks, matrices, experts, width, model's width

    sizes = facts.sizes

    assert (sizes.experts, sizes.experts_used) == (8, 2)
    assert sizes.elements - sizes.active_elements == experts * 3 // 4
    assert sizes.size - sizes.active_size == 4 * experts * 3 // 4


@pytest.mark.parametrize("used", [0, 9])
def test_experts_that_llama_cpp_would_abort_on_are_refused(tmp_path: Path, used: int) -> None:
    model = Dense("qwen3moe", experts=8, experts_used=used, expert_width=32)

    with pytest.raises(ModelFileInvalid, match=f"use of {used} of 8 experts"):
        check_loadable(facts_of(tmp_path, model))


def test_an_embedding_that_is_not_the_output_is_read_by_the_row(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, Dense(vocabulary=300, width=64))

    assert facts.sizes.elements - facts.sizes.active_elements == 299 * 64
    assert not facts.sizes.tied


def test_bits_per_weight_tell_the_trunk_from_the_draft_head(tmp_path: Path) -> None:
    whole = read_facts(write_paper(tmp_path / "w.gguf", Hybrid(blocks=9, head_blocks=1)))
    bare = read_facts(write_paper(tmp_path / "b.gguf", Hybrid(blocks=8)))

    assert whole.sizes.draft_size == whole.sizes.size - bare.sizes.size > 0
    assert whole.sizes.draft_size == whole.sizes.block_sizes[8]
    assert whole.sizes.bpw_trunk == bare.sizes.bpw_trunk == 32
    assert sum(bare.sizes.block_sizes) + bare.sizes.input_size + bare.sizes.output_size == (
        bare.sizes.size
    )


HEAD = Hybrid(blocks=5, head_blocks=1, head_only=True)


@pytest.fixture
def target(tmp_path: Path) -> GGUFFacts:
    return read_facts(write_paper(tmp_path / "target.gguf", Hybrid(blocks=4)))


def test_a_head_of_the_model_is_accepted(target: GGUFFacts, tmp_path: Path) -> None:
    check_draft(target, facts_of(tmp_path, HEAD))


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (replace(HEAD, width=96), "its embedding width is 96, the model's is 64"),
        (replace(HEAD, vocabulary=301), "its vocabulary is 301, the model's is 300"),
        (Hybrid(blocks=4), "it holds no draft layers"),
        (Dense(), "it holds no draft layers"),
    ],
)
def test_a_head_of_another_model_is_refused_with_the_reason(
    target: GGUFFacts, tmp_path: Path, head: Hybrid | Dense, reason: str
) -> None:
    with pytest.raises(DraftRefused, match=reason):
        check_draft(target, facts_of(tmp_path, head))


def test_a_head_of_another_architecture_is_refused(target: GGUFFacts, tmp_path: Path) -> None:
    head = replace(facts_of(tmp_path, HEAD), architecture="glm4moe")

    with pytest.raises(DraftRefused, match="architecture is glm4moe, the model's is qwen35"):
        check_draft(target, head)


def test_a_head_that_llama_cpp_would_abort_on_is_refused(target: GGUFFacts, tmp_path: Path) -> None:
    head = replace(facts_of(tmp_path, HEAD), block_count=9999)

    with pytest.raises(DraftRefused, match="9999 blocks"):
        check_draft(target, head)
