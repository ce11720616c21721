"""`veriloop quant compare`: what each quant lost against its base."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from quant.compare import Measured, compare, join
from quant.corpora_chat import open_corpus
from quant.inspect import inspect
from quant.inspect_name import broken_promises
from quant.inspect_read import ModelFiles, read_model
from quant.passes import Shape
from quant.percentiles import DELTA_P_LEVELS, KLD_LEVELS, percentiles
from quant.report import write_report
from quant.report_data import Comparison, Histogram, QuantLoss, Report, Stopped
from quant.report_json import dump
from quant.report_text import name as label
from quant.statistics import Scores, mean, perplexities, root_mean_square, share, tie
from veriloop_tui.engine.gguf.facts import file_digest


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(name="compare")(run)


def run(
    base: Annotated[Path, typer.Argument(help="The base's file, BF16 or F16.")],
    quants: Annotated[list[Path], typer.Argument(help="Quants of it.")],
    corpus: Annotated[
        list[str] | None, typer.Option("--corpus", help="prose, code, chat or a file; repeatable.")
    ] = None,
    n_ctx: Annotated[int, typer.Option("--n-ctx", min=32, help="Tokens per chunk.")] = 512,
    chunks: Annotated[int, typer.Option("--chunks", min=0, help="At most; 0 for all.")] = 0,
    threads: Annotated[int, typer.Option("--threads", min=1)] = 2,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the report.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Measure perplexity, KLD and more of each quant against its base, on the same tokens."""
    whole, models = read_model(base), [read_model(path) for path in quants]
    # A batch is never shorter than a chunk, since all of a chunk's logits come from one batch.
    shape = Shape(n_ctx, max(2048, n_ctx), 512, threads)
    comparisons, notices = [], []
    for ref in corpus or ["prose"]:
        text = open_corpus(ref, base, threading.Event())
        with Live(console=Console(stderr=True)) as live:

            def step(done: int, of: int, found: Measured, live: Live = live) -> None:
                live.update(_table(done, of, found, models))

            measured = compare(
                whole.paths[0], [one.paths[0] for one in models], text, shape, chunks, step
            )
        notices += measured.notices
        settings = (
            *(("n_ctx", str(n_ctx)), ("n_batch", str(shape.n_batch)), ("n_ubatch", "512")),
            *(("threads", str(threads)), ("corpus sha256", text.sha256[:16])),
            ("special tokens parsed", "yes" if text.parse_special else "no"),
        )
        comparisons.append(_comparison(text.name, whole, models, measured, settings))
    created = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    program = f"veriloop {version('veriloop-tui')}"
    report = Report(
        f"Quants of {whole.name}",
        created,
        program,
        tuple(comparisons),
        (),
        tuple(dict.fromkeys(notices)),
    )
    if out is not None:
        page, *_ = write_report(report, out)
        (out / "report.json").write_text(dump(report), "utf-8")
        typer.echo(f"wrote {page}", err=True)
    if as_json:
        typer.echo(dump(report), nl=False)


def _comparison(
    corpus: str,
    base: ModelFiles,
    models: list[ModelFiles],
    found: Measured,
    settings: tuple[tuple[str, str], ...],
) -> Comparison:
    scores = {number: join(parts) for number, parts in found.scores.items()}
    losses = {number: _loss(models[number], base, one) for number, one in scores.items()}
    floor = join(found.floor)
    return Comparison(
        corpus=corpus,
        base=base.name,
        base_key=file_digest(base.facts),
        base_size=base.facts.file_size,
        base_ppl=perplexities(floor).quant,
        tokens=floor.nll.size,
        chunks=found.chunks,
        quants=tuple(losses.values()),
        ties=frozenset(
            (losses[a].key, losses[b].key)
            for a in scores
            for b in scores
            if a < b and tie(scores[a].kld, scores[b].kld)
        ),
        floor=mean(floor.kld).value,
        stopped=tuple(
            Stopped(models[number].name, models[number].facts.file_size, problem)
            for number, problem in found.problems.items()
        ),
        settings=settings,
    )


def _loss(model: ModelFiles, base: ModelFiles, scores: Scores) -> QuantLoss:
    sizes, ppl = inspect(model, base), perplexities(scores)
    counts, edges = np.histogram(scores.delta_p, bins=80, range=(-1, 1))
    return QuantLoss(
        key=file_digest(model.facts),
        name=model.name,
        file_size=sizes.file_size,
        bpw_all=sizes.sizes.bpw,
        bpw_trunk=sizes.bpw_trunk,
        bpw_body=sizes.sizes.bpw_body,
        ppl=ppl.quant,
        ppl_ratio=ppl.ratio,
        ppl_difference=ppl.difference,
        ln_ratio=ppl.ln_ratio,
        correlation=ppl.correlation,
        kld=mean(scores.kld),
        kld_percentiles=percentiles(scores.kld, KLD_LEVELS),
        delta_p=mean(scores.delta_p),
        delta_p_percentiles=percentiles(scores.delta_p, DELTA_P_LEVELS),
        rms_delta_p=root_mean_square(scores.delta_p),
        same_top=share(scores.same_top),
        kld_by_position=tuple(map(float, scores.kld.mean(axis=0, dtype=np.float64))),
        delta_p_histogram=Histogram(tuple(map(float, edges)), tuple(map(int, counts))),
        notices=broken_promises(sizes),
    )


def _table(done: int, of: int, found: Measured, models: list[ModelFiles]) -> Table:
    table = Table(title=f"{done} of {of} chunks")
    for heading in ("quant", "MiB", "mean KLD", "PPL ratio", "same top, %"):
        table.add_column(heading)
    for number, model in enumerate(models):
        size = f"{model.facts.file_size / 2**20:.1f}"
        if number in found.problems:
            table.add_row(Text(label(model.name)), size, Text(found.problems[number]))
            continue
        scores = join(found.scores[number])
        kld, ratio, top = mean(scores.kld), perplexities(scores).ratio, share(scores.same_top)
        table.add_row(
            Text(label(model.name)),
            size,
            f"{kld.value:.6f} ± {kld.spread:.6f}",
            f"{ratio.value:.4f} ± {ratio.spread:.4f}",
            f"{100 * top.value:.3f} ± {100 * top.spread:.3f}",
        )
    return table
