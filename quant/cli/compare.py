"""`veriloop quant compare` and `veriloop quant study`: what each quant lost against its base."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar, get_args

import platformdirs
import typer
from rich.console import Console
from rich.live import Live

from quant.cli.compare_table import averages, comparison, measuring, preflight, stopped
from quant.losses.scoring import DEEP_FLOOR, FLOOR
from quant.report.data import Report
from quant.report.json_file import dump
from quant.report.pages import write_report
from quant.running.layout import Mode
from quant.running.machine import cores, room_in
from quant.study.progress import Progress
from quant.study.run import Preflight, Told, run_study
from quant.study.study import N_BATCH, N_UBATCH, Axes, Study
from quant.study.study_file import read_study
from quant.study.surroundings import Surroundings
from veriloop_tui.engine.settings import FlashAttention, KVType
from veriloop_tui.errors import UsageError

_T = TypeVar("_T", bound=str)
RECORDS: Final = platformdirs.user_data_path("veriloop", appauthor=False) / "quant"

Records = Annotated[
    Path, typer.Option("--records", help="Where measured chunks are kept, to go on from.")
]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for the report.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command(name="compare")(compare)
    app.command(name="study")(study)


def compare(
    base: Annotated[Path, typer.Argument(help="The base's file, BF16 or F16.")],
    quants: Annotated[list[Path] | None, typer.Argument(help="Quants of it.")] = None,
    corpus: Annotated[
        list[str] | None, typer.Option("--corpus", help="prose, code, chat or a file; repeatable.")
    ] = None,
    n_ctx: Annotated[
        list[int] | None, typer.Option("--n-ctx", min=8, help="Tokens per chunk; repeatable.")
    ] = None,
    n_batch: Annotated[int, typer.Option(min=8, help="As for llama-perplexity.")] = N_BATCH,
    n_ubatch: Annotated[int, typer.Option(min=8, help="As for llama-perplexity.")] = N_UBATCH,
    chunks: Annotated[int, typer.Option(min=0, help="At most, of each text; 0 for all.")] = 0,
    kv: Annotated[
        list[str] | None,
        typer.Option("--kv", help="KV type of the quants, or K/V such as q8_0/q4_0; repeatable."),
    ] = None,
    flash_attention: Annotated[
        list[str] | None,
        typer.Option(help="auto, on or off, for the quants; repeatable."),
    ] = None,
    threads: Annotated[
        list[int] | None, typer.Option(min=1, help="Physical cores by default; repeatable.")
    ] = None,
    gpu_layers: Annotated[int, typer.Option(min=-1, help="-1 for all.")] = -1,
    floor: Annotated[
        int, typer.Option(help="16 as llama-perplexity, or 24: where rows of the base are cut off.")
    ] = 16,
    mode: Annotated[
        str | None, typer.Option(help="lockstep, windows or file; what fits by default.")
    ] = None,
    streams: Annotated[
        int | None, typer.Option(min=1, max=16, help="Groups of chunks decoded at a time.")
    ] = None,
    logits: Annotated[
        Path | None,
        typer.Option(help="A --kl-divergence-base file: read if it is there, else written."),
    ] = None,
    speeds: Annotated[bool, typer.Option(help="Measure speeds, too.")] = True,
    records: Records = RECORDS,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Measure perplexity, KLD and more of each quant against its base, on the same tokens.

    Broken off, it goes on after the last whole chunk when it is called again.
    """
    if not quants and logits is None:
        raise UsageError("Name at least one quant, or --logits FILE to write the base's logits.")
    if logits is not None and max(len(corpus or ()), len(n_ctx or ()), len(threads or ())) > 1:
        raise UsageError("A file of base logits is of one text and one n_ctx; name one of each.")
    wanted = Study(
        base=base,
        quants=tuple(quants or ()),
        corpora=tuple(dict.fromkeys(corpus or ["prose"])),
        axes=Axes(
            n_ctx=tuple(dict.fromkeys(n_ctx or [512])),
            kv=tuple(dict.fromkeys(_types(one) for one in kv or ["f16"])),
            flash_attention=tuple(
                dict.fromkeys(
                    _one_of(get_args(FlashAttention), one, "--flash-attention")
                    for one in flash_attention or ["auto"]
                )
            ),
            threads=tuple(dict.fromkeys(threads or ())),
        ),
        n_batch=n_batch,
        n_ubatch=n_ubatch,
        chunks=chunks,
        floor=_floor(floor),
        gpu_layers=gpu_layers,
        mode=None if mode is None else _one_of(get_args(Mode), mode, "--mode"),
        streams=streams,
        logits=logits,
        speeds=speeds,
    )
    _follow(wanted, records, out, as_json=as_json)


def study(
    file: Annotated[Path, typer.Argument(help="A quant.toml; docs/quant.md describes it.")],
    records: Records = RECORDS,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Run a whole study: several texts, context lengths, KV types and more."""
    found = read_study(file)
    _follow(found, records, out or found.out, as_json=as_json)


def _follow(wanted: Study, records: Path, out: Path | None, *, as_json: bool) -> None:
    told = Console(stderr=True, highlight=False)
    try:
        records.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(f"{records} cannot be made: {problem.strerror}.") from problem
    around = Surroundings(
        records=records,
        room=lambda backend: room_in(records, gpu=backend.gpu and wanted.gpu_layers != 0),
        now=time.monotonic,
        threads=cores(),
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        program=f"veriloop {version('veriloop-tui')}",
    )
    stop = threading.Event()
    with Live(console=told, transient=True, refresh_per_second=4) as live:

        def watch(news: Told) -> None:
            match news:
                case Preflight():
                    live.console.print(preflight(news))
                case Progress():
                    live.update(measuring(news))

        try:
            report = run_study(wanted, around, watch, stop)
        except KeyboardInterrupt:
            stop.set()
            live.console.print("Whole chunks are kept; the same command goes on from them.")
            raise
    _print(report, out, told, as_json=as_json)


def _print(report: Report, out: Path | None, told: Console, *, as_json: bool) -> None:
    if out is not None:
        page, *_ = write_report(report, out)
        (out / "report.json").write_text(dump(report), "utf-8")
        told.print(f"wrote {page}", markup=False)
    if as_json:
        typer.echo(dump(report), nl=False)
        return
    console = Console(highlight=False)
    for one in report.comparisons:
        console.print(comparison(one, console.width))
        for line in stopped(one):
            console.print(line)
    for average in report.averages:
        console.print(averages(average))
    for notice in report.notices:
        console.print(notice, markup=False)


def _types(text: str) -> tuple[KVType, KVType]:
    keys, _, values = text.partition("/")
    names: tuple[KVType, ...] = get_args(KVType)
    return _one_of(names, keys, "--kv"), _one_of(names, values or keys, "--kv")


def _one_of(known: tuple[_T, ...], text: str, option: str) -> _T:
    for one in known:
        if one == text:
            return one
    raise UsageError(f"{option} is one of {', '.join(known)}, not {text}.")


def _floor(number: int) -> float:
    known: dict[int, Literal[16, 24]] = {16: 16, 24: 24}
    if number not in known:
        raise UsageError("--floor is 16 or 24.")
    return FLOOR if known[number] == 16 else DEEP_FLOOR
