"""How fast models are alone, measured once for each and kept."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from quant.running.garage import Garage
from quant.running.measure import Entrant
from quant.running.order import Context, Speed
from quant.study.folder import keep_speeds, known_speeds
from quant.study.leg import Leg
from quant.study.sidecar import Speeds
from quant.study.surroundings import Surroundings
from veriloop_tui.errors import EngineStartFailed, PassFailed

_PROMPT: Final = 512
_GENERATED: Final = 32
_REPEATS: Final = 3


class Trials:
    """Speeds of the models of a study."""

    def __init__(self, around: Surroundings, garage: Garage, *, wanted: bool) -> None:
        """Unless speeds are `wanted`, only what is known is told."""
        self._around, self._garage, self._wanted = around, garage, wanted

    def of(self, leg: Leg) -> tuple[Speeds | None, ...]:
        """Each quant's speeds, `None` if they are not known or it cannot be run."""
        return tuple(self._of(leg, entrant) for entrant in leg.field.quants)

    def seconds(self, leg: Leg, known: Sequence[Speeds | None]) -> float | None:
        """About how long the rest of a leg takes, if all speeds are known."""
        ground, total = leg.field.ground, 0.0
        base = self._of(leg, leg.field.base)
        pairs = zip((leg.field.base, *leg.field.quants), (base, *known), strict=True)
        for entrant, speeds in pairs:
            if speeds is None:
                return None
            left = ground.chunks - len(entrant.record.chunks)
            total += left * ground.shape.n_ctx / median(speeds.read)
        return total

    def _of(self, leg: Leg, entrant: Entrant) -> Speeds | None:
        ground, contestant = leg.field.ground, entrant.contestant
        known = known_speeds(self._around.records, ground, contestant)
        if known is not None or not self._wanted:
            return known
        context = Context(
            n_ctx=_PROMPT + _GENERATED,
            n_ubatch=_PROMPT,
            sequences=1,
            outputs=1,
            threads=ground.threads,
            type_k=contestant.type_k,
            type_v=contestant.type_v,
            flash_attention=contestant.flash_attention,
        )
        if leg.layout.mode != "lockstep":
            self._garage.clear(keep=entrant.key)
        try:
            found = self._garage.speeds(
                entrant.key, entrant.path, Speed(_PROMPT, _GENERATED, _REPEATS, context)
            )
        except (EngineStartFailed, PassFailed):
            # Measuring meets the same fault and tells of it.
            return None
        keep_speeds(self._around.records, ground, contestant, found)
        return found
