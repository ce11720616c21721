"""The tensors of a model's blocks and draft layers, as [out, in]; what fills them is given."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.models.form import HYBRID, Architecture, Array, Form

Make = Callable[[tuple[int, ...]], Array]


@dataclass(frozen=True)
class Fill:
    """Makes each kind of tensor from its shape.

    `back` are the matrices whose products are added to the residual stream, `vector` the delta
    net's decay and bias.
    """

    matrix: Make
    back: Make
    vector: Make
    norm: Make


def trunk(form: Form, fill: Fill) -> dict[str, Array]:
    """All blocks but the draft layers."""
    tensors: dict[str, Array] = {}
    for block in range(form.blocks):
        tensors |= _named(block, _block(form, fill, block))
    return tensors


def draft_layers(
    form: Form, fill: Fill, join: Callable[[int], Array], norm: Make
) -> dict[str, Array]:
    """The draft layers, each a block of attention after the trunk's.

    `join` makes a layer's [width, 2·width] matrix from its number: it joins the token's embedding
    and the hidden row. `norm` makes the norm before the output.
    """
    tensors: dict[str, Array] = {}
    for layer in range(form.draft_layers):
        own = _block(form, fill, None) | {
            "nextn.eh_proj.weight": join(layer),
            "nextn.enorm.weight": fill.norm((form.width,)),
            "nextn.hnorm.weight": fill.norm((form.width,)),
            "nextn.shared_head_norm.weight": norm((form.width,)),
        }
        tensors |= _named(form.blocks + layer, own)
    return tensors


def _named(block: int, own: dict[str, Array]) -> dict[str, Array]:
    return {f"blk.{block}.{name}": tensor for name, tensor in own.items()}


def _block(form: Form, fill: Fill, block: int | None) -> dict[str, Array]:
    """A block of the trunk by its number, or the block of a draft layer."""
    norms: dict[Architecture, Iterable[str]] = {
        "llama": ("attn_norm", "ffn_norm"),
        "hy_v3": ("attn_norm", "ffn_norm"),
        "qwen35": ("attn_norm", "post_attention_norm"),
        "qwen35moe": ("attn_norm", "post_attention_norm"),
    }
    own = {f"{name}.weight": fill.norm((form.width,)) for name in norms[form.architecture]}
    if form.architecture not in HYBRID:
        return own | _attention(form, fill) | _feed_forward(form, fill)
    recurrent = block is not None and (block + 1) % form.interval
    own |= _feed_forward(form, fill)
    return own | (_delta_net(form, fill) if recurrent else _attention(form, fill))


def _feed_forward(form: Form, fill: Fill) -> dict[str, Array]:
    width, inner = form.width, form.feed_forward
    if form.architecture != "qwen35moe":
        return {
            "ffn_gate.weight": fill.matrix((inner, width)),
            "ffn_up.weight": fill.matrix((inner, width)),
            "ffn_down.weight": fill.back((width, inner)),
        }
    return {
        "ffn_gate_inp.weight": fill.matrix((form.experts, width)),
        "ffn_gate_exps.weight": fill.matrix((form.experts, inner, width)),
        "ffn_up_exps.weight": fill.matrix((form.experts, inner, width)),
        "ffn_down_exps.weight": fill.back((form.experts, width, inner)),
        "ffn_gate_inp_shexp.weight": fill.matrix((width,)),
        "ffn_gate_shexp.weight": fill.matrix((inner, width)),
        "ffn_up_shexp.weight": fill.matrix((inner, width)),
        "ffn_down_shexp.weight": fill.back((width, inner)),
    }


def _attention(form: Form, fill: Fill) -> dict[str, Array]:
    width, attention = form.width, form.heads * form.head
    gated = 2 if form.architecture in HYBRID else 1  # query and gate of each head
    own = {
        "attn_q.weight": fill.matrix((gated * attention, width)),
        "attn_k.weight": fill.matrix((attention, width)),
        "attn_v.weight": fill.matrix((attention, width)),
        "attn_output.weight": fill.back((width, attention)),
    }
    if form.architecture != "llama":
        own["attn_q_norm.weight"] = fill.norm((form.head,))
        own["attn_k_norm.weight"] = fill.norm((form.head,))
    return own


def _delta_net(form: Form, fill: Fill) -> dict[str, Array]:
    width = form.width
    group, inner = form.state, form.state * form.ranks  # one group: queries and keys are shared
    return {
        "attn_qkv.weight": fill.matrix((2 * group + inner, width)),
        "attn_gate.weight": fill.matrix((inner, width)),
        "ssm_conv1d.weight": fill.matrix((2 * group + inner, 4)),
        "ssm_dt.bias": fill.vector((form.ranks,)),
        "ssm_a": fill.vector((form.ranks,)),
        "ssm_beta.weight": fill.matrix((form.ranks, width)),
        "ssm_alpha.weight": fill.matrix((form.ranks, width)),
        "ssm_norm.weight": fill.norm((form.state,)),
        "ssm_out.weight": fill.back((width, inner)),
    }
