"""Is scoring hidden behind decoding? `python -m benchmarks.bench_quant_overlap`

A made-up model with a vocabulary of 152,000 and little else, and one of other weights as its quant.
One decode at a time, as on a GPU, by one thread; two streams, so that one scores while the other
decodes. Printed is the share of the wall time in which a decode was running, models loaded before.
"""

import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from quant.running.garage import Garage
from quant.running.layout import Room
from quant.running.measure import Ways, measure
from quant.running.shared import SharedMemory
from quant.study.contest import open_contest
from quant.study.leg import Leg, open_leg
from quant.study.study import Place, Study
from quant.study.surroundings import Surroundings
from tests.models.noise import write_random_gguf

TOKENS = 152_000
CHUNKS = 16
PLENTY = 1 << 40


def decoding(leg: Leg) -> float:
    """Seconds of decoding in all."""
    entrants = (leg.field.base, *leg.field.quants)
    return sum((one.record.seconds_per_chunk() or 0) * len(one.record.chunks) for one in entrants)


def main() -> None:
    """Print the share."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, never = Path(name), threading.Event()
        base, quant = (
            write_random_gguf(
                folder / f"{seed}.gguf", "llama", seed, width=512, blocks=4, more_tokens=TOKENS
            )
            for seed in (1, 2)
        )
        texts = []
        for word in ("first", "second"):
            path = folder / f"{word}.txt"
            path.write_text(f"The {word} text is read by a made-up model. " * 2000, "utf-8")
            texts.append(str(path))
        study = Study(base, (quant,), tuple(texts), chunks=CHUNKS, streams=2, mode="lockstep")
        around = Surroundings(
            folder, lambda _: Room(PLENTY, PLENTY, True, name, PLENTY), time.monotonic, 1, "", ""
        )
        contest = open_contest(study, never)
        contest = replace(contest, backend=replace(contest.backend, gpu=True))
        shared = stack.enter_context(SharedMemory())
        garage = stack.enter_context(Garage(shared.descriptor, -1, never))
        for number in range(2):
            leg = open_leg(study, contest, Place(number, 512, 1), around, stack)
            ways = Ways(leg.layout, garage, shared, leg.logits, lambda _model, _chunk: None, never)
            begun = time.perf_counter()
            measure(leg.field, ways)
            wall = time.perf_counter() - begun
        busy = decoding(leg)
        print(f"decoding {busy:.1f} s of {wall:.1f} s: {busy / wall:.1%}")


if __name__ == "__main__":
    main()
