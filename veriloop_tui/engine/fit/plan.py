"""How to load a model so that it fits: how much context, which layers on a GPU, a head or not.

Nothing here looks at the machine or loads anything: facts and devices in, a plan and the reasons
for it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from veriloop_tui.engine.fit.memory import (
    CELLS,
    Device,
    Plan,
    Use,
    has_own_head,
    hidden_size,
    uses,
)
from veriloop_tui.engine.gguf.facts import GGUFFacts
from veriloop_tui.engine.settings import KVType, LoadSettings

DEFAULT_N_CTX: Final = 32_768
# As far as the context shrinks before layers leave the GPU, and before nothing is left to try.
_ENOUGH_N_CTX: Final = 8_192
_LEAST_N_CTX: Final = 2_048
_UNKNOWN_N_CTX: Final = 8_192
_SEQUENCES: Final = 8
_KV_TYPES: Final[tuple[KVType, ...]] = ("f16", "q8_0", "q4_0")
# What is left free on each device for everything else, and for what the figures miss.
_MARGIN_SHARE: Final = 0.1
_MAX_MARGIN: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Fit:
    """A plan, what it takes of each device, and in what it is not as wanted, in sentences.

    `uses` is by the formulas of `fit_memory`, or what llama.cpp came to if `confirmed`.
    """

    facts: GGUFFacts
    draft: GGUFFacts | None
    devices: tuple[Device, ...]
    plan: Plan
    uses: tuple[Use, ...]
    reasons: tuple[str, ...] = ()
    confirmed: bool = False

    @property
    def fits(self) -> bool:
        """Whether it takes no more than is free, a margin left."""
        return shortage(self.devices, self.uses) == 0

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU has a part in it: for none of them a figure was measured."""
        return any(use.total for use in self.uses[1:])

    @property
    def has_head(self) -> bool:
        """Whether a draft head is part of the plan."""
        return self.plan.speculates and (self.draft is not None or has_own_head(self.facts))


def margin(device: Device) -> int:
    """Bytes of a device that a plan leaves free."""
    return min(round(device.total * _MARGIN_SHARE), _MAX_MARGIN)


def shortage(devices: Sequence[Device], used: Sequence[Use]) -> int:
    """Bytes that are missing on all devices together; 0 where everything fits."""
    takes = [use.total for use in used]
    for at, device in enumerate(devices):
        if device.kind == "igpu":
            takes[0] += takes[at]
    return sum(
        max(0, taken - max(0, device.free - margin(device)))
        for device, taken in zip(devices, takes, strict=True)
        if device.kind != "igpu"
    )


def choose(
    facts: GGUFFacts, draft: GGUFFacts | None, devices: Sequence[Device], wanted: LoadSettings
) -> Fit:
    """The largest plan that fits, of what `wanted` leaves open; what it states is kept.

    The first device is the machine's own memory. Where not everything fits, speculation goes
    first, then context down to 8,192 tokens, then layers from the GPUs, then the rest of the
    context.
    """
    wished = _wished(facts, draft, devices, wanted)
    fit = _planned(facts, draft, tuple(devices), wished)
    reasons: list[str] = []
    if not fit.fits and wanted.speculation == "auto" and (smaller := _without_draft(fit)):
        fit, reasons = smaller, [*smaller.reasons]
    for floor, layers in ((_ENOUGH_N_CTX, False), (_ENOUGH_N_CTX, True), (_LEAST_N_CTX, False)):
        if fit.fits:
            break
        if layers and wanted.gpu_layers is None and fit.plan.gpu_layers:
            fit = _largest(fit, "gpu_layers", 0, fit.plan.gpu_layers, 1)
        elif not layers and wanted.n_ctx is None and fit.plan.n_ctx > floor:
            fit = _largest(fit, "n_ctx", floor, fit.plan.n_ctx, CELLS)
    return replace(fit, reasons=(*_reasons(fit, wished, wanted), *reasons))


def next_smaller(fit: Fit) -> Fit | None:
    """The next plan to try after `fit` ran out of memory, its first reason saying what changed.

    First without speculation, then with half the context and half again, then with three quarters
    of the GPUs' layers and so on; `None` when nothing is left.
    """
    if smaller := _without_draft(fit):
        return smaller
    plan = fit.plan
    if plan.n_ctx > _LEAST_N_CTX:
        n_ctx = max(_LEAST_N_CTX, plan.n_ctx // 2)
        reason = f"The context is {n_ctx:,} tokens instead of {plan.n_ctx:,}: memory ran out."
        return _changed(fit, replace(plan, n_ctx=n_ctx), reason)
    if plan.gpu_layers:
        layers = plan.gpu_layers * 3 // 4
        reason = f"{layers} layers are on the GPU instead of {plan.gpu_layers}: memory ran out."
        return _changed(fit, replace(plan, gpu_layers=layers), reason)
    return None


def measured(fit: Fit, compute: Mapping[str, int], context: int) -> Fit:
    """The same with llama.cpp's own figures: bytes of each of its buffers, and of the context.

    Buffers that are no GPU's are the machine's memory. The context is one figure for all devices,
    so it is shared out by the formulas.
    """
    estimated = sum(use.context for use in fit.uses)
    factor = context / estimated if estimated else 1.0
    names = {device.name for device in fit.devices[1:]}
    # Made room for only when they are first needed, so llama.cpp has not said so.
    hidden = hidden_size(fit.facts) if fit.has_head else 0
    found = [
        replace(
            use,
            context=round(use.context * factor),
            compute=compute.get(use.device, 0)
            if at
            else hidden + sum(size for name, size in compute.items() if name not in names),
        )
        for at, use in enumerate(fit.uses)
    ]
    return replace(fit, uses=tuple(found), confirmed=True)


def largest_n_ctx(fit: Fit) -> int:
    """The most tokens of context that fit beside everything else of the plan; 0 if none do.

    No more than the model was made for.
    """
    most = fit.facts.context_length or fit.plan.n_ctx
    found = _largest(fit, "n_ctx", CELLS, max(CELLS, most), CELLS)
    return found.plan.n_ctx if found.fits else 0


def largest_by_type(fit: Fit) -> tuple[tuple[KVType, int], ...]:
    """For some types of keys and values, the most tokens that fit; the plan's own types first."""
    found: list[tuple[KVType, int]] = []
    for one in dict.fromkeys((fit.plan.type_k, *_KV_TYPES)):
        other = _changed(fit, replace(fit.plan, type_k=one, type_v=one))
        found.append((one, largest_n_ctx(other)))
    return tuple(found)


def loaded_by(fit: Fit, wanted: LoadSettings) -> LoadSettings:
    """The settings that load the plan, with everything that a plan says nothing of as wanted."""
    plan = fit.plan
    return replace(
        wanted,
        n_ctx=plan.n_ctx,
        gpu_layers=plan.gpu_layers,
        parallel=plan.sequences,
        draft=wanted.draft if plan.speculates else None,
        speculation=wanted.speculation if plan.speculates else "off",
    )


def summary(fit: Fit) -> str:
    """How much of the model goes where, in one sentence."""
    takes = [
        f"{gibibytes(use.total)} of the {gibibytes(device.free)} free on {device.name}"
        for device, use in zip(fit.devices, fit.uses, strict=True)
    ]
    if len(fit.devices) == 1:
        return f"It takes {takes[0]}."
    layers, every = fit.plan.gpu_layers, len(fit.facts.layers.blocks) + 1
    placed = "All" if layers == every else f"{layers} of {every}"
    return f"{placed} layers are on a GPU; it takes {', '.join(takes)}."


def gibibytes(size: float) -> str:
    """A size for people."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def _wished(
    facts: GGUFFacts, draft: GGUFFacts | None, devices: Sequence[Device], wanted: LoadSettings
) -> Plan:
    """What is wanted, and the defaults where everything fits."""
    all_layers = len(facts.layers.blocks) + 1 if len(devices) > 1 else 0
    layers = all_layers if wanted.gpu_layers is None else wanted.gpu_layers
    speculates = wanted.speculation != "off"
    one = facts.layers.recurrent and speculates
    return Plan(
        n_ctx=wanted.n_ctx or min(facts.context_length or _UNKNOWN_N_CTX, DEFAULT_N_CTX),
        gpu_layers=min(all_layers, layers) if layers >= 0 else all_layers,
        sequences=wanted.parallel or (1 if one else _SEQUENCES),
        rollback=wanted.draft_max if speculates else 0,
        speculates=speculates,
        type_k=wanted.type_k,
        type_v=wanted.type_v,
        flash=wanted.flash_attention != "off",
        shares=(1.0,) if wanted.split_mode == "none" else wanted.tensor_split,
    )


def _planned(
    facts: GGUFFacts, draft: GGUFFacts | None, devices: tuple[Device, ...], plan: Plan
) -> Fit:
    return Fit(facts, draft, devices, plan, uses(facts, draft, devices, plan))


def _changed(fit: Fit, plan: Plan, *reasons: str) -> Fit:
    return replace(_planned(fit.facts, fit.draft, fit.devices, plan), reasons=reasons)


def _without_draft(fit: Fit) -> Fit | None:
    """The same without speculation, where that frees memory worth the name."""
    if not fit.has_head and not (fit.plan.speculates and fit.facts.layers.recurrent):
        return None
    less = _changed(fit, replace(fit.plan, speculates=False, rollback=0))
    freed = sum(use.total for use in fit.uses) - sum(use.total for use in less.uses)
    what = "the draft head and what it needs" if fit.has_head else "the states to take tokens back"
    reason = f"Speculation is off: {what} would take {gibibytes(freed)} more than there is."
    return replace(less, reasons=(reason,))


def _largest(fit: Fit, field: str, least: int, most: int, step: int) -> Fit:
    """The plan with the largest value of `field` that fits, by halving; else with the least."""

    def at(value: int) -> Fit:
        changed: Callable[..., Plan] = replace
        return _changed(fit, changed(fit.plan, **{field: value}))

    low, high = -(-least // step), most // step
    while low < high:
        middle = -(-(low + high) // 2)
        if at(middle * step).fits:
            low = middle
        else:
            high = middle - 1
    return at(max(least, low * step))


def _reasons(fit: Fit, wished: Plan, wanted: LoadSettings) -> list[str]:
    plan, facts = fit.plan, fit.facts
    reasons: list[str] = []
    native = facts.context_length
    made_for = f" of the {native:,} that the model was made for" if native else ""
    if plan.n_ctx < wished.n_ctx:
        reasons.append(
            f"The context is {plan.n_ctx:,} tokens{made_for}: {wished.n_ctx:,} do not fit."
        )
    elif wanted.n_ctx is None and native > plan.n_ctx:
        reasons.append(f"The context is {plan.n_ctx:,} tokens{made_for}; more has to be asked for.")
    elif native and plan.n_ctx > native:
        reasons.append(f"The context is {plan.n_ctx:,} tokens, more than the model was made for.")
    if not fit.fits:
        missing = gibibytes(shortage(fit.devices, fit.uses))
        reasons.append(f"It does not fit: {missing} are missing; take a smaller quant or model.")
    return reasons
