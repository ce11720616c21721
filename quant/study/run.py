"""A study from beginning to end: what is to be measured, measured, and told of."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from quant.losses.statistics import mean, perplexities
from quant.report.data import Average, Comparison, Report, Stopped
from quant.running.conveyor import Text
from quant.running.garage import Garage
from quant.running.layout import Layout, Need, Room, Runner, lay_out
from quant.running.logits_store import remove
from quant.running.measure import BASE, Entrant, Field, Ways, measure
from quant.running.order import Context, Speed
from quant.running.shape import cut
from quant.running.shared import SharedMemory
from quant.study.contest import Competitor, Contest, open_contest
from quant.study.folder import GroundFolder, keep_speeds, known_speeds
from quant.study.judge import Heard, average, loss, pairs
from quant.study.progress import Clock, Progress, QuantProgress, Running
from quant.study.sidecar import Contestant, Ground, Speeds
from quant.study.study import Place, Study, Variant, places, shape_of, variants
from quant.study.vocabulary import Backend
from veriloop_tui.core.ports import Cancel
from veriloop_tui.errors import EngineStartFailed, PassFailed, UsageError

_PROMPT: Final = 512
_GENERATED: Final = 32
_REPEATS: Final = 3
_STREAMS: Final = 2


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a study is given: `records` is where measurements are kept, `room` tells what is free
    there, `now` a clock in seconds, `created` and `program` what the report says of itself."""

    records: Path
    room: Callable[[Backend], Room]
    now: Callable[[], float]
    threads: int
    created: str
    program: str


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a place will take, told before it begins: bytes, and seconds if the speeds are known."""

    title: str
    layout: Layout
    chunks: int
    seconds: float | None


Told = Progress | Preflight


@dataclass(frozen=True, slots=True)
class _Leg:
    """One place with all that is measured there; quants in the order of variants, then of files."""

    place: Place
    field: Field
    heard: Sequence[tuple[Competitor, Variant]]
    layout: Layout
    logits: Path
    folder: GroundFolder


def run_study(
    study: Study, around: Surroundings, watch: Callable[[Told], None], cancel: Cancel
) -> Report:
    """Measure what is not yet measured, and report all. `watch` is called from several threads.

    What was measured is kept whenever it stops. Raises what `open_contest` and `measure` do,
    `MemoryTooSmall`, `DiskTooSmall`, `RecordInvalid`.
    """
    contest = open_contest(study, cancel)
    with ExitStack() as stack:
        shared = stack.enter_context(SharedMemory())
        garage = stack.enter_context(Garage(shared.descriptor, study.gpu_layers, cancel))
        legs = [
            _leg(study, contest, place, around, stack) for place in places(study, around.threads)
        ]
        speeds = _Speeds(study, contest, around, garage)
        clock = Clock(sum(map(_of, legs)), sum(map(_done, legs)), around.now())
        comparisons: list[Comparison] = []
        for leg in legs:
            known = [speeds.of(leg, number) for number in range(len(leg.heard))]
            watch(
                Preflight(
                    _title(contest, leg),
                    leg.layout,
                    leg.field.ground.chunks,
                    speeds.seconds(leg, known),
                )
            )
            watcher = _Watcher(_title(contest, leg), leg.field, clock, around.now, watch)
            ways = Ways(leg.layout, garage, shared, leg.logits, watcher.told, cancel)
            measure(leg.field, ways)
            if leg.logits != study.logits:
                remove(leg.logits)
            comparisons += _comparisons(study, contest, leg, known)
        return Report(
            title=f"Quants of {contest.base.name}",
            created=around.created,
            program=around.program,
            comparisons=tuple(comparisons),
            averages=tuple(_averages(comparisons)),
            notices=contest.notices,
        )


def _leg(
    study: Study, contest: Contest, place: Place, around: Surroundings, stack: ExitStack
) -> _Leg:
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
    return _Leg(place, field, heard, layout, study.logits or folder.logits, folder)


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


class _Speeds:
    """How fast models are alone, measured once for each and kept."""

    def __init__(
        self, study: Study, contest: Contest, around: Surroundings, garage: Garage
    ) -> None:
        self._study, self._contest, self._around = study, contest, around
        self._garage = garage

    def of(self, leg: _Leg, number: int) -> Speeds | None:
        """A model's speeds, `None` if they are not wanted or it cannot be run."""
        entrant = leg.field.base if number == BASE else leg.field.quants[number]
        ground, contestant = leg.field.ground, entrant.contestant
        known = known_speeds(self._around.records, ground, contestant)
        if known is not None or not self._study.speeds:
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

    def seconds(self, leg: _Leg, known: Sequence[Speeds | None]) -> float | None:
        """About how long the rest of a leg takes, if all speeds are known."""
        base = self.of(leg, BASE)
        if base is None or None in known:
            return None
        ground, total = leg.field.ground, 0.0
        for entrant, speeds in zip(
            (leg.field.base, *leg.field.quants), (base, *known), strict=True
        ):
            assert speeds is not None
            left = ground.chunks - len(entrant.record.chunks)
            total += left * ground.shape.n_ctx / sorted(speeds.read)[len(speeds.read) // 2]
        return total


class _Watcher:
    """Turns measured chunks into progress."""

    def __init__(
        self,
        title: str,
        field: Field,
        clock: Clock,
        now: Callable[[], float],
        watch: Callable[[Told], None],
    ) -> None:
        self._title, self._field, self._clock = title, field, clock
        self._now, self._watch = now, watch
        self._lock = threading.Lock()
        self._rows = [Running(one.name, _size(one)) for one in field.quants]
        for row, one in zip(self._rows, field.quants, strict=True):
            for chunk in sorted(one.record.chunks):
                row.add(one.record.losses(chunk))

    def told(self, number: int, chunk: int) -> None:
        """A chunk of a model is measured; a negative chunk: there will be no more."""
        with self._lock:
            left = 1
            if number != BASE:
                quant, row = self._field.quants[number], self._rows[number]
                if chunk >= 0:
                    row.add(quant.record.losses(chunk))
                else:
                    row.stop(self._field.problems[number])
                    left = self._field.ground.chunks - len(quant.record.chunks)
            self._clock.step(left)
            done, of = self._clock.counts
            rows: tuple[QuantProgress, ...] = tuple(row.progress() for row in self._rows)
            self._watch(Progress(self._title, done, of, self._clock.left(self._now()), rows))


def _size(entrant: Entrant) -> int:
    return entrant.path.stat().st_size


def _of(leg: _Leg) -> int:
    return leg.field.ground.chunks * (1 + len(leg.field.quants))


def _done(leg: _Leg) -> int:
    return sum(len(one.record.chunks) for one in (leg.field.base, *leg.field.quants))


def _title(contest: Contest, leg: _Leg) -> str:
    return f"{contest.corpora[leg.place.corpus].name}, n_ctx {leg.place.n_ctx}"


def _comparisons(
    study: Study, contest: Contest, leg: _Leg, speeds: Sequence[Speeds | None]
) -> Iterator[Comparison]:
    """One for each variant: quants computed in different ways are not ranked together."""
    numbered = list(enumerate(leg.heard))
    for variant, members in groupby(numbered, key=lambda pair: pair[1][1]):
        yield _comparison(contest, leg, variant, [number for number, _ in members], speeds)


def _comparison(
    contest: Contest,
    leg: _Leg,
    variant: Variant,
    numbers: Sequence[int],
    speeds: Sequence[Speeds | None],
) -> Comparison:
    ground, field = leg.field.ground, leg.field
    heard, stopped = [], []
    for number in numbers:
        competitor, _ = leg.heard[number]
        if (problem := field.problems.get(number)) is not None:
            size = competitor.files.facts.file_size
            stopped.append(Stopped(competitor.name, size, problem))
        elif (scores := field.quants[number].record.scores()) is not None:
            heard.append(Heard(competitor, scores, speeds[number]))
    floor = field.base.record.scores()
    told = floor or (heard[0].scores if heard else None)
    if told is None:
        raise UsageError("Nothing was measured: no quant could be run, for the reasons above.")
    return Comparison(
        corpus=contest.corpora[leg.place.corpus].name,
        base=contest.base.name,
        base_key=contest.base.key,
        base_size=contest.base.files.facts.file_size,
        base_ppl=perplexities(told).quant if floor is not None else perplexities(told).base,
        tokens=told.nll.size,
        chunks=ground.chunks,
        quants=tuple(loss(one, contest.base) for one in heard),
        pairs=pairs(heard),
        floor=mean(floor.kld).value if floor is not None else None,
        stopped=tuple(stopped),
        settings=_settings(ground, variant),
    )


def _settings(ground: Ground, variant: Variant) -> tuple[tuple[str, str], ...]:
    shape = ground.shape
    return (
        ("n_ctx", str(shape.n_ctx)),
        ("n_batch", str(shape.n_batch)),
        ("n_ubatch", str(shape.n_ubatch)),
        ("threads", str(ground.threads)),
        ("KV types", f"{variant.type_k}/{variant.type_v}"),
        ("flash attention", variant.flash_attention),
        ("BOS", "none" if ground.bos is None else str(ground.bos)),
        ("special tokens parsed", "yes" if ground.parse_special else "no"),
        ("floor", f"-{ground.floor:.0f}"),
        ("corpus sha256", ground.text[:16]),
        ("base sha256", ground.base[:16]),
        ("build", ground.backend.build),
        ("devices", ", ".join(ground.backend.devices)),
    )


_OWN: Final = frozenset({"corpus sha256", "special tokens parsed"})


def _averages(comparisons: Sequence[Comparison]) -> Iterator[Average]:
    """One for each group of comparisons that differ in nothing but the corpus."""
    groups: dict[tuple[tuple[str, str], ...], list[Comparison]] = {}
    for one in comparisons:
        shared = tuple(pair for pair in one.settings if pair[0] not in _OWN)
        groups.setdefault(shared, []).append(one)
    for group in groups.values():
        if (found := average(group)) is not None:
            yield found
