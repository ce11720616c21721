"""What is to be known of a quant without running it: sizes, and what they are spent on."""

from __future__ import annotations

from dataclasses import dataclass

from quant.inspecting.read import ModelFiles
from veriloop_tui.engine.gguf.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Inspection:
    """A model's sizes; `file_size` in bytes, headers included.

    `bpw_trunk` is in bits per weight without draft head; where a base was given, per weight of the
    base's trunk, so that a quant that left tensors out cannot look better than it is.
    """

    name: str
    stated: str
    architecture: str
    file_size: int
    bpw_trunk: float
    sizes: Sizes


def inspect(model: ModelFiles, base: ModelFiles | None = None) -> Inspection:
    """The sizes of a model, held against those of its base."""
    sizes = model.facts.sizes
    bpw_trunk = sizes.bpw_trunk
    if base is not None and (weights := _trunk_weights(base.facts.sizes)):
        bpw_trunk = 8 * (sizes.size - sizes.draft_size) / weights
    return Inspection(
        name=model.name,
        stated=model.stated,
        architecture=model.facts.architecture,
        file_size=model.facts.file_size,
        bpw_trunk=bpw_trunk,
        sizes=sizes,
    )


def _trunk_weights(sizes: Sizes) -> int:
    trunk = 8 * (sizes.size - sizes.draft_size)
    return round(trunk / sizes.bpw_trunk) if sizes.bpw_trunk else 0
