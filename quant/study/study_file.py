"""`quant.toml`: a whole study in a file.

base = "model-BF16.gguf"
quants = ["model-Q8_0.gguf", "model-Q4_K_M.gguf"]
corpora = ["prose", "code", "wiki.txt"]

[axes]
n_ctx = [512, 4096]
kv = ["f16", "q8_0", ["q8_0", "q4_0"]]
flash_attention = ["on"]
threads = [8]
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from quant.corpora.corpora import SHIPPED
from quant.losses.scoring import DEEP_FLOOR, FLOOR
from quant.running.layout import Mode
from quant.study.study import N_BATCH, N_UBATCH, Axes, Study
from veriloop_tui.engine.settings import FlashAttention, KVType
from veriloop_tui.errors import StudyInvalid

_MAX_BYTES = 1 << 20
_Size = Annotated[int, Field(ge=8, le=1 << 24)]
_Threads = Annotated[int, Field(ge=1, le=1024)]
_Count = Annotated[int, Field(ge=0)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Axes(_Table):
    n_ctx: Annotated[list[_Size], Field(min_length=1)] = [512]
    kv: Annotated[list[KVType | tuple[KVType, KVType]], Field(min_length=1)] = ["f16"]
    flash_attention: Annotated[list[FlashAttention], Field(min_length=1)] = ["auto"]
    threads: list[_Threads] = []


class _Study(_Table):
    base: str
    quants: Annotated[list[str], Field(min_length=1)]
    corpora: Annotated[list[str], Field(min_length=1)] = ["prose"]
    out: str = ""
    axes: _Axes = _Axes()
    n_batch: _Size = N_BATCH
    n_ubatch: _Size = N_UBATCH
    chunks: _Count = 0
    floor: Literal[16, 24] = 16
    gpu_layers: Annotated[int, Field(ge=-1)] = -1
    mode: Mode | None = None
    streams: Annotated[int, Field(ge=1, le=16)] | None = None
    speeds: bool = True


def read_study(path: Path) -> Study:
    """The study in a file; paths in it are relative to its folder. Raises `StudyInvalid`."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise StudyInvalid(str(path), "it is larger than 1 MiB")
        table = _Study.model_validate(tomllib.loads(data.decode("utf-8")))
    except OSError as problem:
        raise StudyInvalid(str(path), problem.strerror or str(problem)) from problem
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StudyInvalid(str(path), f"{where}: {first['msg']}") from None
    except ValueError as problem:
        raise StudyInvalid(str(path), f"it is not TOML: {problem}") from None
    folder = path.parent
    return Study(
        base=folder / table.base,
        quants=tuple(folder / one for one in table.quants),
        out=folder / (table.out or path.stem),
        corpora=tuple(one if one in SHIPPED else str(folder / one) for one in table.corpora),
        axes=Axes(
            n_ctx=tuple(dict.fromkeys(table.axes.n_ctx)),
            kv=tuple(dict.fromkeys(_pair(one) for one in table.axes.kv)),
            flash_attention=tuple(dict.fromkeys(table.axes.flash_attention)),
            threads=tuple(dict.fromkeys(table.axes.threads)),
        ),
        n_batch=table.n_batch,
        n_ubatch=table.n_ubatch,
        chunks=table.chunks,
        floor=FLOOR if table.floor == 16 else DEEP_FLOOR,
        gpu_layers=table.gpu_layers,
        mode=table.mode,
        streams=table.streams,
        speeds=table.speeds,
    )


def _pair(one: KVType | tuple[KVType, KVType]) -> tuple[KVType, KVType]:
    return (one, one) if isinstance(one, str) else one
