"""`veriloop bench`: how fast a model is on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from veriloop_tui.bench.report import Sample
from veriloop_tui.cli.output import JsonOption, say
from veriloop_tui.core.excerpt import one_line
from veriloop_tui.wiring import Flags
from veriloop_tui.wiring import bench as wired


def bench(
    ref: Annotated[str, typer.Argument(metavar="REF", help="A model, as for `run --model`.")],
    draft: Annotated[str | None, typer.Option(help="A draft head, or none.")] = None,
    rounds: Annotated[int, typer.Option(min=1, max=100)] = 3,
    max_tokens: Annotated[int, typer.Option(min=8, max=4096, help="Of each answer.")] = 128,
    n_ctx: Annotated[int | None, typer.Option(min=1024)] = None,
    threads: Annotated[int | None, typer.Option(min=1)] = None,
    gpu_layers: Annotated[int | None, typer.Option(min=-1, help="-1 for all.")] = None,
    draft_max: Annotated[int | None, typer.Option(min=1, max=16)] = None,
    write: Annotated[Path | None, typer.Option(help="Write the run to this JSON file.")] = None,
    compare: Annotated[Path | None, typer.Option(help="A run written before.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure prompt and generation speed, speculation, reuse and candidates on coding prompts."""
    flags = Flags(
        model=ref,
        draft=draft,
        n_ctx=n_ctx or 4096,
        threads=threads,
        gpu_layers=gpu_layers,
        draft_max=draft_max,
    )

    def told(sample: Sample) -> None:
        if not as_json:
            say(_line(sample))

    found = wired.run(flags, rounds, max_tokens, told)
    if write is not None:
        write.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if as_json:
        say(json.dumps(found))
    else:
        _show(found)
    if compare is not None:
        for one in wired.against(compare, found):
            certainty = "" if one.clear else "  (within the spread: no difference shown)"
            say(
                f"{one.name:<10} {one.before:9.1f} -> {one.after:9.1f} tokens/s"
                f"  {one.ratio:5.2f}{certainty}"
            )


def _line(sample: Sample) -> str:
    head = f"round {sample.round + 1}  {sample.way:<22} {sample.prompt:<8}"
    if sample.way in ("cold", "reused"):
        return f"{head} {sample.prompt_ms:9.0f} ms for {sample.prompt_tokens} tokens"
    return f"{head} {sample.completion_tokens * 1e3 / sample.predicted_ms:9.1f} tokens/s"


def _show(found: dict[str, Any]) -> None:
    for notice in found["notices"]:
        say(f"notice     {one_line(notice, 300)}")
    say()
    prompt = found["prompt_tokens_per_second"]
    say(f"prompt                  {prompt['median']:9.1f} tokens/s")
    for speed in found["speeds"]:
        rate = speed["tokens_per_second"]
        shared = f"{speed['acceptance']:.0%} of {speed['drafted']} drafted"
        drafts = f"  {speed['gain']:5.2f} of plain, {shared}" if speed["way"] != "plain" else ""
        say(
            f"generation, {speed['way']:<11} {rate['median']:9.1f} tokens/s"
            f"  ({rate['low']:.1f} to {rate['high']:.1f}){drafts}"
        )
    for way, first in found["first_token_ms"].items():
        spread = f"({first['low']:.0f} to {first['high']:.0f})"
        say(f"first token, {way:<10} {first['median']:9.0f} ms  {spread}")
    say(f"a reused prompt takes   {found['reused_prompt_time']:9.1%} of its cold time")
    if found["candidates_gain"]:
        say(f"8 candidates at once    {found['candidates_gain']:9.2f} of one after the other")
