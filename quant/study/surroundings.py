"""What a study is given by the program around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from quant.running.layout import Room
from quant.study.vocabulary import Backend


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
