"""One text at one length of context, with all that is measured there."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quant.running.conveyor import Text
from quant.running.layout import Layout, Need, Runner, lay_out
from quant.running.measure import Entrant, Field
from quant.running.shape import cut
from quant.study.contest import Competitor, Contest
from quant.study.folder import GroundFolder
from quant.study.sidecar import Contestant, Ground
from quant.study.study import Place, Study, Variant, shape_of, variants
from quant.study.surroundings import Surroundings
from veriloop_tui.errors import UsageError

_STREAMS: Final = 2


@dataclass(frozen=True, slots=True)
class Leg:
    """One place with all that is measured there; quants in the order of variants, then of files."""

    corpus: str
    field: Field
    heard: Sequence[tuple[Competitor, Variant]]
    layout: Layout
    logits: Path

    @property
    def passes(self) -> int:
        """Passes of a chunk through a model, in all."""
        return self.field.ground.chunks * (1 + len(self.field.quants))

    @property
    def done(self) -> int:
        """Those that were measured before."""
        return sum(len(one.record.chunks) for one in (self.field.base, *self.field.quants))


def open_leg(
    study: Study, contest: Contest, place: Place, around: Surroundings, stack: ExitStack
) -> Leg:
    """Make or go on with the records of a place. Raises `UsageError`, `RecordInvalid`,
    `MemoryTooSmall`, `DiskTooSmall`, `EngineStartFailed`."""
    shape, tokens = shape_of(study, place), contest.tokens[place.corpus]
    chunks = cut(len(tokens), shape, study.chunks)
    corpus = contest.corpora[place.corpus]
    if not chunks:
        raise UsageError(
            f"The text {corpus.name} has {len(tokens):,} tokens and at n_ctx {shape.n_ctx} at "
            f"least {2 * shape.n_ctx:,} are needed; take a longer text or a smaller n_ctx."
        )
    used = tokens[: chunks * shape.n_ctx].reshape(chunks, shape.n_ctx)
    ground = Ground(
        base=contest.base.sha256,
        text=corpus.sha256,
        parse_special=corpus.parse_special,
        tokens=hashlib.sha256(used.astype("<i4").tobytes()).hexdigest(),
        bos=contest.bos,
        vocabulary=contest.vocabulary,
        chunks=chunks,
        shape=shape,
        threads=place.threads,
        gpu_layers=study.gpu_layers,
        backend=contest.backend,
        floor=study.floor,
    )
    folder = stack.enter_context(
        GroundFolder(
            around.records,
            ground,
            {"corpus": corpus.name, "base": contest.base.name, "sources": corpus.sources},
        )
    )
    heard = [(quant, variant) for variant in variants(study) for quant in contest.quants]
    field = Field(
        ground=ground,
        text=Text(used, contest.bos),
        base=_entrant(folder, contest.base, Contestant(contest.base.sha256, "base")),
        quants=[_entrant(folder, quant, _contestant(quant, variant)) for quant, variant in heard],
    )
    need = Need(
        runners=[
            _runner(competitor, entrant)
            for competitor, entrant in zip(
                (contest.base, *(quant for quant, _ in heard)),
                (field.base, *field.quants),
                strict=True,
            )
        ],
        shape=shape,
        chunks=chunks,
        vocabulary=contest.vocabulary,
        streams=study.streams or min(_STREAMS, len(shape.groups(chunks)), place.threads),
    )
    mode = "file" if study.logits is not None else study.mode
    layout = lay_out(need, around.room(contest.backend), mode)
    return Leg(corpus.name, field, heard, layout, study.logits or folder.logits)


def _contestant(quant: Competitor, variant: Variant) -> Contestant:
    return Contestant(
        quant.sha256, "quant", variant.type_k, variant.type_v, variant.flash_attention
    )


def _entrant(folder: GroundFolder, competitor: Competitor, contestant: Contestant) -> Entrant:
    return Entrant(
        key=contestant.key,
        name=competitor.name,
        path=competitor.files.paths[0],
        contestant=contestant,
        record=folder.record(contestant, {"name": competitor.name}),
    )


def _runner(competitor: Competitor, entrant: Entrant) -> Runner:
    one = entrant.contestant
    return Runner(competitor.files.facts, one.type_k, one.type_v, one.flash_attention != "off")
