"""What each block of a model keeps of a context: keys and values, all or of a window, or a state.

Which kind a block is follows from its tensors, so it holds for architectures yet to come; only
windows cannot be seen there. The sizes are llama.cpp's (`llama-hparams.cpp` of the vendored tree).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from veriloop_tui.engine.gguf.metadata import MAX_BLOCKS, Metadata
from veriloop_tui.engine.gguf.read import Tensor

_BLOCK: Final = re.compile(r"blk\.(\d{1,5})\.(.*)", re.DOTALL)
_RECURRENT: Final = ("ssm_", "time_mix_", "shortconv.")
_ATTENTION: Final = ("attn_k.", "attn_kv_a_mqa.", "attn_qkv.")

# Every so-many-th block attends to everything where the header names only a window. A negative
# number: it is the first of each group, not the last.
_WINDOW_PERIODS: Final = {
    "afmoe": 4,
    "cohere2": 4,
    "cohere2moe": -4,
    "exaone-moe": 4,
    "exaone4": 4,
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "gpt-oss": 2,
    "laguna": -4,
    "llama4": 4,
    "mellum": 4,
    "muse-glimmer": 4,
    "olmo2": 4,
    "plamo3": 8,
    "smallthinker": -4,
}
# Windows in tokens where the header is silent.
_WINDOWS: Final = {"exaone-moe": 128, "gemma2": 4_096, "llama4": 8_192}


@dataclass(frozen=True, slots=True)
class Block:
    """What one block keeps. Widths in elements.

    `key_width` and `value_width` for each token of the context, 0 where it does not attend (or
    reads an earlier block's); `sliding`: only tokens in the window are needed; `state_width` F32
    elements for each sequence, whatever its length; `draft`: it belongs to a draft head.
    """

    key_width: int
    value_width: int
    sliding: bool
    state_width: int
    draft: bool


@dataclass(frozen=True, slots=True)
class Layers:
    """A model's blocks, those of a draft head included. `window` in tokens, 0 without one."""

    blocks: tuple[Block, ...]
    window: int

    @property
    def trunk(self) -> tuple[Block, ...]:
        """The blocks that a context of the model itself uses."""
        return tuple(block for block in self.blocks if not block.draft)

    @property
    def recurrent(self) -> bool:
        """Whether any block keeps a state that cannot be cut back to fewer tokens."""
        return any(block.state_width for block in self.trunk)


@dataclass(frozen=True, slots=True)
class Widths:
    """Widths in elements: of a token's row, and of what is computed from it in a block.

    `query`: all heads of a query; `expert`: the hidden row of one of `experts_used`; `convolved`
    and `inner`: a recurrent block's convolution and its rows behind that. 0 where there is none.
    """

    model: int
    heads: int
    query: int
    feed_forward: int
    experts_used: int
    expert: int
    convolved: int
    inner: int


def read_widths(meta: Metadata) -> Widths:
    """The widths of a model. Raises `Malformed`."""
    model = meta.whole("embedding_length")
    heads = max(meta.wholes("attention.head_count"), default=0)
    key, _ = _head_widths(meta, heads, sliding=False)
    inner, state = meta.whole("ssm.inner_size"), meta.whole("ssm.state_size")
    return Widths(
        model=model,
        heads=heads,
        query=heads * key,
        feed_forward=max(meta.wholes("feed_forward_length"), default=0),
        experts_used=max(meta.wholes("expert_used_count"), default=0),
        expert=max(meta.wholes("expert_feed_forward_length"), default=0),
        convolved=inner + 2 * meta.whole("ssm.group_count") * state,
        inner=inner,
    )


def read_layers(meta: Metadata, tensors: Iterable[Tensor]) -> Layers:
    """The blocks of a model. Raises `Malformed`."""
    count, nextn = meta.whole("block_count"), meta.whole("nextn_predict_layers")
    if not 0 <= count <= MAX_BLOCKS or not 0 <= nextn <= count:
        return Layers((), 0)  # `check_loadable` says what is wrong with it.
    parts = block_parts(tensors)
    trunk = count - nextn
    heads = meta.each("attention.head_count", count)
    kv_heads = meta.each("attention.head_count_kv", count, heads[0] if heads else 0)
    window = _window(meta)
    sliding = _sliding(meta, count, trunk) if window else (False,) * count
    # Blocks from there on read the keys and values of earlier ones.
    shared = meta.whole("attention.shared_kv_layers")
    sharing = trunk - shared if 0 < shared < trunk else count
    state = _state_width(meta, heads[0] if heads else 0)
    blocks: list[Block] = []
    for number in range(count):
        names = parts.get(number, frozenset())
        recurrent = number < trunk and any(name.startswith(_RECURRENT) for name in names)
        # A recurrent block's fused projection is no attention's; separate ones are (Falcon H1).
        attends = any(name.startswith(_ATTENTION[: 2 if recurrent else 3]) for name in names)
        key, value = _head_widths(meta, heads[number], sliding[number])
        keeps = kv_heads[number] if attends and number < sharing else 0
        blocks.append(
            Block(
                key_width=keeps * key,
                value_width=keeps * value,
                sliding=sliding[number],
                state_width=state if recurrent else 0,
                draft=number >= trunk,
            )
        )
    return Layers(tuple(blocks), window if any(sliding) else 0)


def block_parts(tensors: Iterable[Tensor]) -> dict[int, frozenset[str]]:
    """For each block that has tensors, their names without the block's."""
    found: dict[int, set[str]] = defaultdict(set)
    for tensor in tensors:
        if match := _BLOCK.fullmatch(tensor.name):
            found[int(match[1])].add(match[2])
    return {number: frozenset(names) for number, names in found.items()}


def _head_widths(meta: Metadata, heads: int, sliding: bool) -> tuple[int, int]:
    """Elements of one head's key and value, for one token."""
    usual = meta.whole("embedding_length") // heads if heads > 0 else 0
    key = meta.whole("attention.key_length") or usual
    value = meta.whole("attention.value_length") or usual
    if meta.whole("attention.key_length_mla"):
        value = 0  # Latent attention: the values are part of what is kept as keys.
    if sliding:
        key = meta.whole("attention.key_length_swa") or key
        value = meta.whole("attention.value_length_swa") or value
    return key, value


def _window(meta: Metadata) -> int:
    if f"{meta.architecture}.attention.sliding_window" in meta.values:
        return meta.whole("attention.sliding_window")
    return _WINDOWS.get(meta.architecture, 0)


def _sliding(meta: Metadata, count: int, trunk: int) -> tuple[bool, ...]:
    """For each block, whether it attends to a window only."""
    stated = meta.wholes("attention.sliding_window_pattern")
    if len(stated) > 1:
        return tuple(bool(flag) for flag in (stated + (0,) * count)[:count])
    period = _WINDOW_PERIODS.get(meta.architecture, 0)
    if period and stated:
        period = stated[0] if period > 0 else -stated[0]
    if period == 0:
        # An architecture that is not known to use its window, or one without exceptions.
        return (False,) * count
    full = 0 if period < 0 else period - 1
    return tuple(number < trunk and number % abs(period) != full for number in range(count))


def _state_width(meta: Metadata, heads: int) -> int:
    """Elements that a recurrent block keeps for one sequence: of the convolution and the state."""
    embedding = meta.whole("embedding_length")
    if wkv := meta.whole("wkv.head_size"):
        return embedding * ((meta.whole("token_shift_count") or 2) + wkv)
    if cache := meta.whole("shortconv.l_cache"):
        return embedding * (cache - 1)
    kernel = meta.whole("ssm.conv_kernel")
    if head := meta.whole("kda.head_dim"):
        return 3 * ((kernel or 4) - 1) * heads * head + head * head * heads
    inner, state = meta.whole("ssm.inner_size"), meta.whole("ssm.state_size")
    groups = meta.whole("ssm.group_count")
    return max(0, kernel - 1) * (inner + 2 * groups * state) + state * inner
