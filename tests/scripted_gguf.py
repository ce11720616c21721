"""Tiny GGUF files for tests, run by the real llama.cpp: none of them has learnt anything.

`write_scripted_gguf` writes a model that *recites*: its weights are computed from the answers that
the test wants to hear; `write_scripted_draft_gguf` writes a draft head for it. `write_random_gguf`
writes random weights, whose every logit depends on every earlier token, for proving that prefix
reuse and roll-back change nothing.

How a scripted model works (architecture `qwen35`, width 32, one gated delta-net block and one
attention block, all F32):

- Each piece of a script is a token of its own, which no prompt can contain: prompts tokenise to
  single bytes, special tokens and triggers. So a script token's successor is a constant.
- A token's *code* is its number among the tokens that can be said, as 16 signs. The embedding of
  a script token is the code of its successor, the output row of a token is its own code. Two codes
  differ in at least one sign, which is worth about 100 logits: temperature cannot matter.
- The first piece depends on the prompt. The delta net of block 0 has one constant key, so it is a
  single cell of memory: a trigger overwrites it with the code of its script's first piece (beta
  = 1), any other token leaves it alone (beta = 0, no decay). What was written last is read by
  prompt tokens, and outweighs the code of the default script in their embeddings.
- Everything else (attention, feed-forward) adds zero.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from gguf import GGUFWriter, TokenType
from numpy.typing import NDArray

Array = NDArray[np.float32]
Fill = Callable[[tuple[int, ...]], Array]
Architecture = Literal["llama", "qwen35"]

EOS_TEXT = "<|im_end|>"
START_TEXT = "<|im_start|>"
_EOS_ID = 256  # after the bytes
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_CODE_BITS = 16
MAX_PIECES = 2**_CODE_BITS - 1  # of all scripts together; code 0 is the end of the answer

# Dimensions of a scripted model's embedding; the first _CODE_BITS hold a code.
_ANY, _PROMPT, _TRIGGER = _CODE_BITS, _CODE_BITS + 1, _CODE_BITS + 2
_RAILS = 2 * _CODE_BITS  # a SiLU keeps no sign, so memory holds "is +" and "is -" for each one
_SHARPNESS = 40.0  # logits per normalised sign: with less, temperature would matter
_SATURATED = 60.0  # sigmoid and SiLU of this are 0 or linear to within F32, and exp is finite


@dataclass(frozen=True)
class _Token:
    text: str
    kind: TokenType


@dataclass(frozen=True)
class _Sizes:
    """Widths in elements: of the model, and of one block's parts."""

    context: int
    width: int
    blocks: int
    heads: int
    head: int
    feed_forward: int
    state: int  # of one delta-net head (qwen35 only)
    ranks: int  # delta-net heads (qwen35 only)
    interval: int  # every so-many-th block is attention (qwen35 only)
    draft_blocks: int = 0  # of the blocks, how many at the end are a draft head


@dataclass(frozen=True)
class _Recital:
    """What a scripted model and its draft head have in common."""

    sizes: _Sizes
    tokens: list[_Token]
    first_piece: int  # id of the first script token; the prompt's tokens are below
    embedding: Array  # [tokens, width]
    output: Array  # [tokens, width]


def write_scripted_gguf(
    path: Path,
    scripts: Mapping[str, str],
    default: str,
    n_ctx: int = 16384,
    *,
    piece_bytes: int = 4,
) -> Path:
    """Write a scripted model of architecture `qwen35`, which recites given answers exactly.

    The answer is the script of the last trigger in the prompt, `default` where there is none, then
    EOS. `scripts` maps trigger texts (two characters or more) to answers. A piece is at most
    `piece_bytes` bytes long (1 to 32) and may end inside a UTF-8 character, like real tokens; the
    prompt takes one token per byte. `n_ctx` is the trained context in the header, in tokens.
    """
    said = _recital(scripts, default, n_ctx, piece_bytes)
    tensors = {
        "token_embd.weight": said.embedding,
        "output_norm.weight": np.full(said.sizes.width, _SHARPNESS, np.float32),
        "output.weight": said.output,
        **_qwen35_blocks(said.sizes, matrix=_zeros, vector=_zeros, norm=_ones),
        **_memory_of_last_trigger(said.sizes),
    }
    return _write(path, "qwen35", said.sizes, said.tokens, tensors)


def write_scripted_draft_gguf(
    path: Path,
    scripts: Mapping[str, str],
    default: str,
    n_ctx: int = 16384,
    *,
    piece_bytes: int = 4,
    right_share: float = 1.0,
    seed: int = 0,
) -> Path:
    """Write a draft head (MTP, in a file of its own) for the scripted model of the same arguments.

    It foretells the successors of a `right_share` (0 to 1) of the script tokens, chosen by `seed`,
    and errs on the rest. It sees no trigger, so of a triggered script it errs on the first token.
    Block 0 and 1 are absent, as in published heads: load it with `load_mtp` in an MTP context only.
    """
    said = _recital(scripts, default, n_ctx, piece_bytes)
    width, block = said.sizes.width, said.sizes.blocks
    n_pieces = len(said.tokens) - said.first_piece
    wrong = np.random.default_rng(seed).permutation(n_pieces)[round(n_pieces * right_share) :]
    embedding = said.embedding.copy()
    embedding[said.first_piece + wrong, :_CODE_BITS] *= -1  # the code of another token, or of none
    blocks = _qwen35_blocks(
        replace(said.sizes, blocks=block + 1, interval=1), _zeros, _zeros, _ones
    )
    own = f"blk.{block}."
    tensors = {
        "token_embd.weight": embedding,
        "output_norm.weight": np.full(width, _SHARPNESS, np.float32),
        "output.weight": said.output,
        **{name: tensor for name, tensor in blocks.items() if name.startswith(own)},
        # The token counts, the target's hidden state does not.
        f"{own}nextn.eh_proj.weight": np.eye(width, 2 * width, dtype=np.float32),
        f"{own}nextn.enorm.weight": _ones((width,)),
        f"{own}nextn.hnorm.weight": _ones((width,)),
        f"{own}nextn.shared_head_norm.weight": np.full(width, _SHARPNESS, np.float32),
    }
    sizes = replace(said.sizes, blocks=block + 1, draft_blocks=1)
    return _write(path, "qwen35", sizes, said.tokens, tensors)


def write_random_gguf(
    path: Path,
    architecture: Architecture,
    seed: int,
    *,
    n_ctx: int = 4096,
    width: int = 64,
    blocks: int = 4,
) -> Path:
    """Write a model of random F32 weights, the same bytes for the same arguments.

    `llama` is attention only; in `qwen35` every fourth block is attention and the rest are gated
    delta nets. Tokeniser and template are those of a scripted model without scripts. What it says
    is noise and need not be UTF-8: compare token ids and logits. `width` is a multiple of 32.
    """
    if width % 32 or blocks < 1:
        raise ValueError("width must be a multiple of 32, and there must be a block")
    random = np.random.default_rng(seed)

    def matrix(shape: tuple[int, ...]) -> Array:
        return random.standard_normal(shape, np.float32) / np.float32(shape[-1] ** 0.5)

    def vector(shape: tuple[int, ...]) -> Array:
        # The vectors that are no norms are the delta net's decay (ssm_a, which must be negative)
        # and its bias. Small, so that a token is remembered beyond the next few.
        return -random.uniform(0.01, 0.3, shape).astype(np.float32)

    sizes = _Sizes(
        context=n_ctx,
        width=width,
        blocks=blocks,
        heads=width // 16,
        head=16,
        feed_forward=2 * width,
        state=16,
        ranks=2,
        interval=4,
    )
    tokens = _prompt_tokens()
    make_blocks = _llama_blocks if architecture == "llama" else _qwen35_blocks
    tensors = {
        "token_embd.weight": random.standard_normal((len(tokens), width), np.float32),
        "output_norm.weight": np.full(width, 3, np.float32),  # logits of deviation 3
        "output.weight": matrix((len(tokens), width)),
        **make_blocks(sizes, matrix, vector, _ones),
    }
    return _write(path, architecture, sizes, tokens, tensors)


def _recital(scripts: Mapping[str, str], default: str, n_ctx: int, piece_bytes: int) -> _Recital:
    """Give every piece of every script a token, and every token its embedding and output row."""
    if not 1 <= piece_bytes <= 32:
        raise ValueError("piece_bytes must be from 1 to 32")
    for trigger in scripts:
        if len(trigger) < 2 or trigger in (EOS_TEXT, START_TEXT):
            raise ValueError(f"{trigger!r} cannot be a trigger")
    tokens = _prompt_tokens() + [_Token(text, TokenType.USER_DEFINED) for text in scripts]
    n_prompt = len(tokens)
    taken = {token.text for token in tokens}
    first_code: list[int] = []  # of each script, the default first
    successor: list[int] = []  # of each script token, as a code
    for answer in (default, *scripts.values()):
        pieces = list(_pieces(answer.encode(), piece_bytes, taken))
        start = len(successor) + 1
        codes = [*range(start, start + len(pieces)), 0]
        first_code.append(codes[0])
        successor += codes[1:]
        tokens += pieces
    if len(successor) > MAX_PIECES:
        raise ValueError(f"the scripts take {len(successor)} pieces, more than {MAX_PIECES}")

    sizes = _Sizes(
        context=n_ctx,
        width=32,
        blocks=2,
        heads=1,
        head=32,
        feed_forward=32,
        state=_RAILS,
        ranks=1,
        interval=2,
    )
    embedding = np.zeros((len(tokens), sizes.width), np.float32)
    embedding[:, _ANY] = 1
    embedding[:n_prompt, _PROMPT] = 1
    embedding[n_prompt - len(scripts) : n_prompt, _TRIGGER] = 1
    embedding[:n_prompt, :_CODE_BITS] = _codes(np.array(first_code[:1]))
    embedding[n_prompt - len(scripts) : n_prompt, :_CODE_BITS] = _codes(np.array(first_code[1:]))
    embedding[n_prompt:, :_CODE_BITS] = _codes(np.array(successor))
    output = np.zeros_like(embedding)
    output[_EOS_ID, :_CODE_BITS] = _codes(np.zeros(1))
    output[n_prompt:, :_CODE_BITS] = _codes(np.arange(1, len(successor) + 1))
    return _Recital(sizes, tokens, n_prompt, embedding, output)


def _prompt_tokens() -> list[_Token]:
    """The tokens of every model: 256 bytes (id = byte), then EOS and the start of a message."""
    return [
        *(_Token(letter, TokenType.NORMAL) for letter in _BYTE_LETTERS),
        _Token(EOS_TEXT, TokenType.CONTROL),
        _Token(START_TEXT, TokenType.CONTROL),
    ]


def _byte_letters() -> str:
    """The letter for each byte in GPT-2 vocabularies: itself if visible, else one from U+0100."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    invisible = [byte for byte in range(256) if byte not in visible]
    return "".join(chr(b if b in visible else 256 + invisible.index(b)) for b in range(256))


_BYTE_LETTERS = _byte_letters()
_OPENING_BRACKETS = frozenset("<[")


def _pieces(data: bytes, piece_bytes: int, taken: set[str]) -> Iterator[_Token]:
    """Cut `data` into tokens whose texts are not yet `taken`, and take them.

    A duplicate text aborts the loader. Pieces of several bytes are out of reach of a prompt because
    the vocabulary has no merges for them. When every length is taken, a BYTE token says the byte:
    llama.cpp reads no more than the two hex digits of its text, so a suffix makes it unique.
    So are brackets said, since a piece like `</s>` or `[EOT]` would end the answer: llama.cpp
    knows such tokens by their text.
    """
    at = 0
    while at < len(data):
        for size in range(min(piece_bytes, len(data) - at), 1, -1):
            text = "".join(_BYTE_LETTERS[byte] for byte in data[at : at + size])
            if text not in taken and not _OPENING_BRACKETS & set(text):
                token = _Token(text, TokenType.NORMAL)
                break
        else:
            size = 1
            token = _Token(f"<0x{data[at]:02X}>~{len(taken)}", TokenType.BYTE)
        taken.add(token.text)
        yield token
        at += size


def _codes(numbers: NDArray[np.generic]) -> Array:
    """The codes of numbers [n] below 2^16 as signs [n, 16], lowest bit first."""
    bits = numbers.astype(np.int64)[:, None] >> np.arange(_CODE_BITS) & 1
    return (2 * bits - 1).astype(np.float32)


def _zeros(shape: tuple[int, ...]) -> Array:
    return np.zeros(shape, np.float32)


def _ones(shape: tuple[int, ...]) -> Array:
    return np.ones(shape, np.float32)


def _memory_of_last_trigger(sizes: _Sizes) -> dict[str, Array]:
    """Block 0 of a scripted model: adds the last trigger's code, about 19-fold, to prompt tokens.

    The projections see the normalised embedding, in which a 1 is about 1.4.
    """
    state, width = sizes.state, sizes.width
    qkv = _zeros((3 * state, width))
    qkv[[0, state], _ANY] = _SATURATED  # query and key: the same unit vector at every token
    for bit in range(_CODE_BITS):
        qkv[2 * state + 2 * bit, bit] = _SATURATED
        qkv[2 * state + 2 * bit + 1, bit] = -_SATURATED
    convolution = _zeros((3 * state, 4))
    convolution[:, 3] = 1  # of the last four tokens, only the current one
    beta = _zeros((1, width))
    beta[0, _ANY], beta[0, _TRIGGER] = -_SATURATED, 2 * _SATURATED
    gate = _zeros((state, width))
    gate[:, _PROMPT] = 10  # script tokens have 0 here: SiLU(0) = 0, they read nothing
    out = _zeros((width, state))
    for bit in range(_CODE_BITS):
        out[bit, 2 * bit], out[bit, 2 * bit + 1] = 1, -1
    return {
        "blk.0.attn_qkv.weight": qkv,
        "blk.0.ssm_conv1d.weight": convolution,
        "blk.0.ssm_beta.weight": beta,
        "blk.0.attn_gate.weight": gate,
        "blk.0.ssm_out.weight": out,
    }


def _qwen35_blocks(sizes: _Sizes, matrix: Fill, vector: Fill, norm: Fill) -> dict[str, Array]:
    """All blocks' tensors as [out, in]; attention in every `interval`-th, else a delta net."""
    width, attention = sizes.width, sizes.heads * sizes.head
    group, inner = sizes.state, sizes.state * sizes.ranks  # one group: queries and keys are shared
    tensors: dict[str, Array] = {}
    for block in range(sizes.blocks):
        own = {
            "attn_norm.weight": norm((width,)),
            "post_attention_norm.weight": norm((width,)),
            "ffn_gate.weight": matrix((sizes.feed_forward, width)),
            "ffn_up.weight": matrix((sizes.feed_forward, width)),
            "ffn_down.weight": matrix((width, sizes.feed_forward)),
        }
        if (block + 1) % sizes.interval == 0:
            own |= {
                "attn_q.weight": matrix((2 * attention, width)),  # query and gate of each head
                "attn_k.weight": matrix((attention, width)),
                "attn_v.weight": matrix((attention, width)),
                "attn_output.weight": matrix((width, attention)),
                "attn_q_norm.weight": norm((sizes.head,)),
                "attn_k_norm.weight": norm((sizes.head,)),
            }
        else:
            own |= {
                "attn_qkv.weight": matrix((2 * group + inner, width)),
                "attn_gate.weight": matrix((inner, width)),
                "ssm_conv1d.weight": matrix((2 * group + inner, 4)),
                "ssm_dt.bias": vector((sizes.ranks,)),
                "ssm_a": vector((sizes.ranks,)),
                "ssm_beta.weight": matrix((sizes.ranks, width)),
                "ssm_alpha.weight": matrix((sizes.ranks, width)),
                "ssm_norm.weight": norm((sizes.state,)),
                "ssm_out.weight": matrix((width, inner)),
            }
        tensors |= {f"blk.{block}.{name}": tensor for name, tensor in own.items()}
    return tensors


def _llama_blocks(sizes: _Sizes, matrix: Fill, vector: Fill, norm: Fill) -> dict[str, Array]:
    """All blocks' tensors as [out, in]; `vector` is not needed."""
    width, attention = sizes.width, sizes.heads * sizes.head
    tensors: dict[str, Array] = {}
    for block in range(sizes.blocks):
        own = {
            "attn_norm.weight": norm((width,)),
            "attn_q.weight": matrix((attention, width)),
            "attn_k.weight": matrix((attention, width)),
            "attn_v.weight": matrix((attention, width)),
            "attn_output.weight": matrix((width, attention)),
            "ffn_norm.weight": norm((width,)),
            "ffn_gate.weight": matrix((sizes.feed_forward, width)),
            "ffn_up.weight": matrix((sizes.feed_forward, width)),
            "ffn_down.weight": matrix((width, sizes.feed_forward)),
        }
        tensors |= {f"blk.{block}.{name}": tensor for name, tensor in own.items()}
    return tensors


def _write(
    path: Path,
    architecture: Architecture,
    sizes: _Sizes,
    tokens: list[_Token],
    tensors: Mapping[str, Array],
) -> Path:
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(sizes.context)
    writer.add_embedding_length(sizes.width)
    writer.add_block_count(sizes.blocks)
    writer.add_feed_forward_length(sizes.feed_forward)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.heads)
    writer.add_key_length(sizes.head)
    writer.add_value_length(sizes.head)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(sizes.head)
    writer.add_rope_freq_base(10000.0)
    if architecture == "qwen35":
        writer.add_rope_dimension_sections([sizes.head // 4, sizes.head // 8, sizes.head // 8, 0])
        writer.add_ssm_conv_kernel(4)
        writer.add_ssm_inner_size(sizes.state * sizes.ranks)
        writer.add_ssm_state_size(sizes.state)
        writer.add_ssm_time_step_rank(sizes.ranks)
        writer.add_ssm_group_count(1)
        writer.add_full_attention_interval(sizes.interval)
        if sizes.draft_blocks:
            writer.add_nextn_predict_layers(sizes.draft_blocks)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list([token.text for token in tokens])
    writer.add_token_types([token.kind for token in tokens])
    writer.add_token_merges(["☃ ☃"])  # the loader wants one; no byte's letter is a snowman
    writer.add_eos_token_id(_EOS_ID)
    writer.add_bos_token_id(_EOS_ID)
    writer.add_pad_token_id(_EOS_ID)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
