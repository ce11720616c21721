"""A tiny model of random weights with a large vocabulary: what a token costs beside decoding."""

from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType

_WIDTH = 32
_SQUARE = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def write_wide_gguf(path: Path, tokens: int) -> Path:
    """Write a `llama` of one block and `tokens` entries in its vocabulary."""
    random = np.random.default_rng(1)

    def matrix(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return random.standard_normal(shape, np.float32) / np.float32(shape[-1] ** 0.5)

    writer = GGUFWriter(path, "llama")
    writer.add_context_length(4096)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_WIDTH)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(_WIDTH)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"t{number}" for number in range(tokens)])
    writer.add_token_types([TokenType.NORMAL] * tokens)
    writer.add_token_merges(["t 0"])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    ones = np.ones(_WIDTH, np.float32)
    tensors = {
        "token_embd.weight": matrix(tokens, _WIDTH),
        "output_norm.weight": ones,
        "output.weight": matrix(tokens, _WIDTH),
        "blk.0.attn_norm.weight": ones,
        "blk.0.ffn_norm.weight": ones,
        **{
            f"blk.0.{name}.weight": matrix(_WIDTH, _WIDTH)
            for name in ("attn_q", "attn_k", "attn_v", "attn_output")
        },
        **{
            f"blk.0.{name}.weight": matrix(_WIDTH, _WIDTH)
            for name in ("ffn_gate", "ffn_up", "ffn_down")
        },
    }
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
