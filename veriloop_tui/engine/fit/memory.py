"""How much memory a model takes on each device: weights, context, and room to compute in.

Weights and context follow from the header and are exact. The room for computing is llama.cpp's to
decide, so the formulas here are fitted to what it reserved for models of many shapes on a CPU
(`tests/engine/fit/test_memory.py` holds them against it); on a GPU nothing was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from veriloop_tui.engine.gguf.facts import GGUFFacts
from veriloop_tui.engine.gguf.kinds import row_size
from veriloop_tui.engine.gguf.layers import Block
from veriloop_tui.engine.settings import KVType

# Tokens evaluated at once, as `engine.batch.N_BATCH`, which cannot be imported without llama.cpp.
BATCH: Final = 512
# llama.cpp rounds a context up to a multiple of this.
CELLS: Final = 256
_F32: Final = 4
_F16: Final = 2

DeviceKind = Literal["cpu", "gpu", "igpu"]


@dataclass(frozen=True, slots=True)
class Device:
    """Memory that a model can lie in; bytes. The first device is the machine's own memory.

    `igpu`: a GPU that has the machine's memory and none of its own.
    """

    name: str
    description: str
    kind: DeviceKind
    free: int
    total: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How a model is to be loaded.

    `gpu_layers` counts as llama.cpp does: the blocks from the end, and one for the output.
    `sequences` are candidates in one batch; `rollback` the tokens that can be taken back;
    `speculates`: with a draft head, where there is one. `shares` is each GPU's part of the
    layers, empty for parts by free memory.
    """

    n_ctx: int
    gpu_layers: int
    sequences: int
    rollback: int
    speculates: bool
    type_k: KVType = "f16"
    type_v: KVType = "f16"
    flash: bool = True
    shares: tuple[float, ...] = ()

    @property
    def cells(self) -> int:
        """Tokens that the context really holds."""
        return -(-self.n_ctx // CELLS) * CELLS


@dataclass(frozen=True, slots=True)
class Use:
    """What a model takes of one device, in bytes."""

    device: str
    weights: int
    context: int
    compute: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.context + self.compute


def uses(
    facts: GGUFFacts, draft: GGUFFacts | None, devices: Sequence[Device], plan: Plan
) -> tuple[Use, ...]:
    """What the model takes of each device, with its draft head if the plan speculates.

    `draft` is a head in a file of its own; one inside the model's file is used without it.
    """
    weights, context = [0] * len(devices), [0] * len(devices)
    busy = {0}
    inner = plan.speculates and draft is None and has_own_head(facts)
    blocks = facts.layers.blocks
    places = place(len(blocks), plan, devices)
    for number, block in enumerate(blocks):
        if block.draft and not inner:
            continue
        weights[places[number]] += facts.sizes.block_size(number)
        context[places[number]] += context_size(block, plan)
        busy.add(places[number])
    _add_ends(facts, places[-1], weights)
    busy.add(places[-1])
    compute = _compute(facts, devices, plan, busy)
    if plan.speculates and draft is not None:
        theirs = place(len(draft.layers.blocks), plan, devices)
        for number, block in enumerate(draft.layers.blocks):
            weights[theirs[number]] += draft.sizes.block_size(number)
            context[theirs[number]] += context_size(block, plan)
        _add_ends(draft, theirs[-1], weights)
    if plan.speculates and (draft is not None or inner):
        compute[0] += hidden_size(facts)
        head = draft if draft is not None else facts
        extra = _compute(head, devices, plan, {0, places[-1]}, head=True)
        compute = [one + more for one, more in zip(compute, extra, strict=True)]
    return tuple(
        Use(device.name, weights[at], context[at], compute[at]) for at, device in enumerate(devices)
    )


def hidden_size(facts: GGUFFacts) -> int:
    """Bytes of the hidden rows that a draft head works on: a batch's of the model, and its own."""
    return 2 * BATCH * facts.widths.model * _F32


def has_own_head(facts: GGUFFacts) -> bool:
    """Whether a draft head is inside the model's own file."""
    return bool(facts.nextn_predict_layers) and not facts.draft_head_only


def place(blocks: int, plan: Plan, devices: Sequence[Device]) -> tuple[int, ...]:
    """The device of each block, and last of the output; as llama.cpp deals them out.

    The last `gpu_layers` go to the GPUs in their order, in runs as long as the GPUs' shares.
    """
    gpus = range(1, len(devices))
    layers = min(plan.gpu_layers, blocks + 1) if gpus else 0
    first = blocks + 1 - layers
    shares = plan.shares or tuple(float(devices[at].free) for at in gpus)
    shares = (shares + (0.0,) * len(devices))[: len(gpus)]
    total = sum(shares)
    if total <= 0:
        shares, total = (1.0,) * len(gpus), float(len(gpus))
    found = [0] * first
    for layer in range(layers):
        share, upto = layer / layers, 0.0
        for at, part in zip(gpus, shares, strict=True):
            upto += part / total
            if share < upto or at == gpus[-1]:
                found.append(at)
                break
    return tuple(found)


def context_size(block: Block, plan: Plan) -> int:
    """Bytes that one block keeps of a context.

    A draft head's block has only one sequence. llama.cpp is let keep all of a sliding window's
    context, since a prompt could not be cut back without.
    """
    cells = plan.cells
    kept = row_size(plan.type_k, block.key_width) + row_size(plan.type_v, block.value_width)
    return round(cells * kept) + _state_size(block, plan)


def state_size(facts: GGUFFacts, plan: Plan) -> int:
    """Bytes of the recurrent blocks' states: one for each sequence and token to take back."""
    return sum(_state_size(block, plan) for block in facts.layers.blocks)


def _state_size(block: Block, plan: Plan) -> int:
    return block.state_width * _F32 * plan.sequences * (1 + plan.rollback)


def _add_ends(facts: GGUFFacts, output_at: int, weights: list[int]) -> None:
    """Embeddings always lie in the machine's memory; an embedding that is the output does too."""
    sizes = facts.sizes
    weights[0] += sizes.input_size
    weights[output_at] += sizes.output_size
    if sizes.tied and output_at:
        weights[output_at] += sizes.input_size


def _compute(
    facts: GGUFFacts, devices: Sequence[Device], plan: Plan, busy: set[int], *, head: bool = False
) -> list[int]:
    """Room to compute in, for each device, with the rows that come out of it."""
    tokens = min(BATCH, plan.cells)
    room = compute_size(facts, plan, head=head)
    rows = 1 if head else max(plan.sequences, 1 + plan.rollback)
    out = rows * facts.vocabulary_size * _F32
    passing = 2 * tokens * facts.widths.model * _F32
    found = [0] * len(devices)
    host_computes = busy == {0} or plan.gpu_layers <= len(facts.layers.blocks)
    for at in busy:
        found[at] = room if at or host_computes else passing
    found[0] += out
    return found


def compute_size(facts: GGUFFacts, plan: Plan, *, head: bool = False) -> int:
    """Bytes of a device's room to compute in: the largest of what a batch needs at one time.

    Fitted, per token of the batch: a feed-forward of width F needs 3 F + 4 E (E: the model's
    width), one of k used experts of width X needs 3 k X + 4 E, and k E more where 2 X < E;
    attention with heads of Q elements altogether 3 Q + 2 E; a delta net with a convolution over C
    and an inner width of N the larger of 3 (C + E) and 3 C + 2 N + E and the states it writes. To
    these comes the mask: one row of the context per token, in 16 bits; without flash attention in
    32, and as much again for each head.
    """
    tokens = min(BATCH, plan.cells)
    widths = facts.widths
    width = widths.model
    stages: list[float] = [
        3 * widths.feed_forward + 4 * width,
        3 * widths.query + 2 * width,
    ]
    if used := widths.experts_used:
        narrow = 2 * widths.expert < width
        stages.append(3 * used * widths.expert + (4 + used * narrow) * width)
    if facts.layers.recurrent and not head:
        state = max(block.state_width for block in facts.layers.trunk)
        states = state * plan.sequences * (1 + plan.rollback) / tokens
        convolved = widths.convolved
        stages += [3 * (convolved + width), 3 * convolved + 2 * widths.inner + width + states]
    rows = 1 if head else max(plan.sequences, 1 + plan.rollback)
    stages.append(rows * facts.vocabulary_size / tokens)
    sliding = any(block.sliding for block in facts.layers.trunk)
    attends = any(block.key_width for block in facts.layers.blocks)
    masks = (1 + sliding) * attends
    if plan.flash:
        mask = masks * plan.cells * _F16
        return round(tokens * (max(stages) * _F32 + mask))
    scores = plan.cells * widths.heads + 2 * width + widths.query
    return round(tokens * _F32 * (max(*stages, scores) + masks * plan.cells))
