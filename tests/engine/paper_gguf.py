"""Models on paper: GGUF files with true headers and, by way of a hole in the file, zero weights.

They take no room on a disk whatever their size, and llama.cpp loads them.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

from veriloop_tui.engine.gguf.facts import read_facts

Shapes = dict[str, tuple[int, ...]]  # innermost last
Value = int | float | list[int] | list[bool]


@dataclass(frozen=True)
class Dense:
    """A transformer; with `experts` a mixture of them, with `window` gemma3's sliding windows."""

    architecture: str = "llama"
    width: int = 64
    feed_forward: int = 128
    heads: int = 4
    kv_heads: int = 2
    head: int = 16
    blocks: int = 4
    vocabulary: int = 300
    tied: bool = False
    experts: int = 0
    experts_used: int = 0
    expert_width: int = 0
    window: int = 0


@dataclass(frozen=True)
class Hybrid:
    """A qwen35: every fourth block is attention, the rest are delta nets; `head_blocks` at the end
    are a draft head, and with `head_only` nothing else is in the file."""

    width: int = 64
    feed_forward: int = 128
    heads: int = 4
    kv_heads: int = 2
    head: int = 16
    blocks: int = 4
    vocabulary: int = 300
    state: int = 16
    groups: int = 2
    ranks: int = 4
    head_blocks: int = 0
    head_only: bool = False


def write_paper(
    path: Path,
    model: Dense | Hybrid,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    more: dict[str, Value] | None = None,
    tensors_each: int = 0,
) -> Path:
    """Write a model, its matrices in F32 or F16, `more` added to its metadata.

    With `tensors_each` it is in parts of so many tensors; the first one's path is returned.
    """
    architecture = model.architecture if isinstance(model, Dense) else "qwen35"
    writer = GGUFWriter(path, architecture, split_max_tensors=tensors_each)
    values = _dense_values(model) if isinstance(model, Dense) else _hybrid_values(model)
    for key, value in (values | (more or {})).items():
        name = f"{architecture}.{key}"
        if isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        else:
            writer.add_uint32(name, value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"token{number}" for number in range(model.vocabulary)])
    writer.add_token_types([1] * model.vocabulary)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(0)
    shapes = _dense_shapes(model) if isinstance(model, Dense) else _hybrid_shapes(model)
    for name, shape in shapes.items():
        plain = len(shape) == 1 or "conv1d" in name or "gate_inp" in name
        of = GGMLQuantizationType.F32 if plain else kind
        dtype = np.dtype(np.float32 if of is GGMLQuantizationType.F32 else np.float16)
        size = int(np.prod(shape)) * dtype.itemsize
        writer.add_tensor_info(name, shape, dtype, size, of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    if tensors_each:
        path = min(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))
    for part in read_facts(path).parts:
        os.truncate(part.path, part.expected_size)
    return path


def _common_values(model: Dense | Hybrid) -> dict[str, Value]:
    return {
        "context_length": 262_144,
        "embedding_length": model.width,
        "block_count": model.blocks,
        "feed_forward_length": model.feed_forward,
        "attention.head_count": model.heads,
        "attention.head_count_kv": model.kv_heads,
        "attention.key_length": model.head,
        "attention.value_length": model.head,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": model.head,
        "rope.freq_base": 10_000.0,
    }


def _dense_values(model: Dense) -> dict[str, Value]:
    values = _common_values(model)
    if model.experts:
        values["expert_count"] = model.experts
        values["expert_used_count"] = model.experts_used
        values["expert_feed_forward_length"] = model.expert_width
    if model.window:
        values["attention.sliding_window"] = model.window
    return values


def _hybrid_values(model: Hybrid) -> dict[str, Value]:
    values = _common_values(model)
    values |= {
        "rope.dimension_sections": [model.head // 4, model.head // 8, model.head // 8, 0],
        "ssm.conv_kernel": 4,
        "ssm.inner_size": model.state * model.ranks,
        "ssm.state_size": model.state,
        "ssm.time_step_rank": model.ranks,
        "ssm.group_count": model.groups,
        "full_attention_interval": 4,
    }
    if model.head_blocks:
        values["nextn_predict_layers"] = model.head_blocks
    return values


def _ends(model: Dense | Hybrid, tied: bool) -> Shapes:
    shapes: Shapes = {
        "token_embd.weight": (model.vocabulary, model.width),
        "output_norm.weight": (model.width,),
    }
    return shapes if tied else shapes | {"output.weight": (model.vocabulary, model.width)}


def _dense_shapes(model: Dense) -> Shapes:
    shapes = _ends(model, model.tied)
    width, query, keys = model.width, model.heads * model.head, model.kv_heads * model.head
    for block in range(model.blocks):
        own: Shapes = {
            "attn_norm.weight": (width,),
            "attn_q.weight": (query, width),
            "attn_k.weight": (keys, width),
            "attn_v.weight": (keys, width),
            "attn_output.weight": (width, query),
            "ffn_norm.weight": (width,),
        }
        if model.experts:
            inner = (model.experts, model.expert_width, width)
            own["ffn_gate_inp.weight"] = (model.experts, width)
            own["ffn_gate_exps.weight"] = own["ffn_up_exps.weight"] = inner
            own["ffn_down_exps.weight"] = (model.experts, width, model.expert_width)
        else:
            own["ffn_gate.weight"] = own["ffn_up.weight"] = (model.feed_forward, width)
            own["ffn_down.weight"] = (width, model.feed_forward)
        if model.architecture != "llama":
            own["attn_q_norm.weight"] = own["attn_k_norm.weight"] = (model.head,)
        if model.architecture == "gemma3":
            own["post_attention_norm.weight"] = own["post_ffw_norm.weight"] = (width,)
        shapes |= {f"blk.{block}.{name}": shape for name, shape in own.items()}
    return shapes


def _hybrid_shapes(model: Hybrid) -> Shapes:
    shapes = _ends(model, tied=False)
    width, query, keys = model.width, model.heads * model.head, model.kv_heads * model.head
    inner = model.state * model.ranks
    convolved = inner + 2 * model.state * model.groups
    trunk = model.blocks - model.head_blocks
    for block in range(trunk if model.head_only else 0, model.blocks):
        own: Shapes = {
            "attn_norm.weight": (width,),
            "post_attention_norm.weight": (width,),
            "ffn_gate.weight": (model.feed_forward, width),
            "ffn_up.weight": (model.feed_forward, width),
            "ffn_down.weight": (width, model.feed_forward),
        }
        if block >= trunk or (block + 1) % 4 == 0:
            own |= {
                "attn_q.weight": (2 * query, width),
                "attn_k.weight": (keys, width),
                "attn_v.weight": (keys, width),
                "attn_output.weight": (width, query),
                "attn_q_norm.weight": (model.head,),
                "attn_k_norm.weight": (model.head,),
            }
        else:
            own |= {
                "attn_qkv.weight": (convolved, width),
                "attn_gate.weight": (inner, width),
                "ssm_conv1d.weight": (convolved, 4),
                "ssm_dt.bias": (model.ranks,),
                "ssm_a": (model.ranks,),
                "ssm_beta.weight": (model.ranks, width),
                "ssm_alpha.weight": (model.ranks, width),
                "ssm_norm.weight": (model.state,),
                "ssm_out.weight": (width, inner),
            }
        if block >= trunk:
            own |= {
                "nextn.eh_proj.weight": (width, 2 * width),
                "nextn.enorm.weight": (width,),
                "nextn.hnorm.weight": (width,),
                "nextn.shared_head_norm.weight": (width,),
            }
        shapes |= {f"blk.{block}.{name}": shape for name, shape in own.items()}
    return shapes
