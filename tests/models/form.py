"""The sizes of a test model, and the GGUF file that is made of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

from tests.models.vocabulary import CHAT_TEMPLATE, EOS_ID, Token

Array = NDArray[np.float32]
# llama has attention only; the qwen35 ones are hybrids of attention and recurrent blocks, with
# experts in qwen35moe; hy_v3 has attention only and may have several draft layers.
Architecture = Literal["llama", "qwen35", "qwen35moe", "hy_v3"]
HYBRID = ("qwen35", "qwen35moe")


@dataclass(frozen=True)
class Form:
    """Widths in elements: of the model, and of one block's parts."""

    architecture: Architecture
    context: int
    width: int
    blocks: int
    heads: int
    head: int
    feed_forward: int
    state: int  # of one delta-net head (hybrids only)
    ranks: int  # delta-net heads (hybrids only)
    interval: int  # every so-many-th block is attention (hybrids only)
    draft_layers: int = 0  # they come after the blocks
    experts: int = 4  # of which two are used (qwen35moe only)


def write_gguf(
    path: Path,
    form: Form,
    tokens: Sequence[Token],
    tensors: Mapping[str, Array],
    template: str = CHAT_TEMPLATE,
) -> Path:
    """Write tensors [out, in] with the metadata of `form`."""
    writer = GGUFWriter(path, form.architecture)
    writer.add_context_length(form.context)
    writer.add_embedding_length(form.width)
    writer.add_block_count(form.blocks + form.draft_layers)
    writer.add_feed_forward_length(form.feed_forward)
    writer.add_head_count(form.heads)
    writer.add_head_count_kv(form.heads)
    writer.add_key_length(form.head)
    writer.add_value_length(form.head)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(form.head)
    writer.add_rope_freq_base(10000.0)
    if form.architecture in HYBRID:
        writer.add_rope_dimension_sections([form.head // 4, form.head // 8, form.head // 8, 0])
        writer.add_ssm_conv_kernel(4)
        writer.add_ssm_inner_size(form.state * form.ranks)
        writer.add_ssm_state_size(form.state)
        writer.add_ssm_time_step_rank(form.ranks)
        writer.add_ssm_group_count(1)
        writer.add_full_attention_interval(form.interval)
    if form.architecture == "qwen35moe":
        writer.add_expert_count(form.experts)
        writer.add_expert_used_count(2)
        writer.add_expert_shared_feed_forward_length(form.feed_forward)
    if form.architecture in ("qwen35moe", "hy_v3"):
        writer.add_expert_feed_forward_length(form.feed_forward)
    if form.draft_layers:
        writer.add_nextn_predict_layers(form.draft_layers)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list([token.text for token in tokens])
    writer.add_token_types([token.kind for token in tokens])
    writer.add_token_merges(["☃ ☃"])  # the loader wants one; no byte's letter is a snowman
    writer.add_eos_token_id(EOS_ID)
    writer.add_bos_token_id(EOS_ID)
    writer.add_pad_token_id(EOS_ID)
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
