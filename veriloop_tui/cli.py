"""The command line: arguments in, exit codes out. Everything else is behind `wiring`.

Exit codes: 0 complete (or clean), 1 ended without completing (or damaged), 2 usage or contract,
3 baseline not rankable, 4 engine failure, 5 nothing to improve, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from veriloop_tui import __version__, cli_bench, cli_models, console, wiring
from veriloop_tui.cli_output import JsonOption, cancel_on_interrupt, say, say_json
from veriloop_tui.core.event import Event, IncumbentMeasured, RunEnded, event_json
from veriloop_tui.core.excerpt import one_line, sanitise
from veriloop_tui.errors import Cancelled, UsageError, VeriloopError

app = typer.Typer(
    name="veriloop",
    help="A local model proposes edits; your own tests decide what may persist.",
    epilog="Exit codes: 0 complete, 1 not complete, 2 usage or contract, 3 not rankable, "
    "4 engine failure, 5 nothing to improve, 130 interrupted.",
    no_args_is_help=False,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(cli_models.app)
app.command()(cli_bench.bench)

WorkspaceOption = Annotated[
    Path, typer.Option("--workspace", "-C", help="The folder to work on.", file_okay=False)
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", "-m", help="A GGUF file, NAME[:QUANT], or hf:OWNER/REPO[:QUANT]."),
]
SandboxOption = Annotated[
    str | None, typer.Option("--sandbox", help="Isolation of the commands: best, reduced, none.")
]
HERE = Path()


@app.callback(invoke_without_command=True)
def open_app(
    context: typer.Context,
    workspace: WorkspaceOption = HERE,
    model: ModelOption = None,
    sandbox: SandboxOption = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Open the terminal app on the workspace."""
    if version:
        say(f"veriloop {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is not None:
        return
    if not sys.stdout.isatty() or not sys.stdin.isatty():
        raise UsageError("There is no terminal; use a command such as `veriloop run --auto`.")
    flags = wiring.Flags(model=model, sandbox=sandbox)
    ended = wiring.open_terminal(workspace, flags)
    raise typer.Exit(console.EXIT_CODES[ended.outcome] if ended else 0)


@app.command()
def init(
    workspace: WorkspaceOption = HERE,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing contract.")] = False,
) -> None:
    """Detect the test command, show it, and write and trust a contract."""
    path = os.environ.get("PATH", os.defpath)
    written = wiring.init(workspace, path, force=force)
    for found in written.found:
        say(f"found      {one_line(found, 300)}")
    for notice in written.notices:
        say(f"notice     {one_line(notice, 500)}")
    say(f"wrote {written.path}:")
    say()
    say(written.text)
    say("Next: `veriloop verify` ranks the workspace as it is.")


@app.command()
def trust(
    workspace: WorkspaceOption = HERE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Let the commands of the contract run, after showing them."""
    question = wiring.trust_question(workspace)
    for line in question.lines:
        say(line)
    if question.trusted:
        say("This contract is trusted already.")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("There is no terminal to ask on; pass --yes to trust it.")
        if not typer.confirm("Trust these commands?"):
            raise typer.Exit(1)
    wiring.trust(workspace, question)
    say("Trusted.")


@app.command()
def verify(
    workspace: WorkspaceOption = HERE,
    sandbox: SandboxOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rank the workspace as it is. Exit 0 all zero, 1 not, 3 not rankable."""
    satisfied = False
    with cancel_on_interrupt() as cancel:
        for event in wiring.verify(workspace, wiring.Flags(sandbox=sandbox), cancel):
            show_event(event, as_json)
            if isinstance(event, IncumbentMeasured):
                held = any(status.quarantined for status in event.obligations)
                satisfied = event.total == 0 and not held
                if not as_json:
                    for status in event.obligations:
                        for line in console.failing_excerpts(status):
                            say(line)
    raise typer.Exit(0 if satisfied else 1)


@app.command()
def run(
    task: Annotated[str, typer.Argument(help="What to do, in your own words.")],
    workspace: WorkspaceOption = HERE,
    model: ModelOption = None,
    attempts: Annotated[int | None, typer.Option(min=1, help="At most this many.")] = None,
    auto: Annotated[bool, typer.Option("--auto", help="Commit without asking.")] = False,
    seed: Annotated[int | None, typer.Option(help="Of the run; random if not given.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0.0, max=5.0)] = None,
    edit_format: Annotated[
        str | None, typer.Option(help="auto, search-replace, function or file.")
    ] = None,
    sandbox: SandboxOption = None,
    n_ctx: Annotated[int | None, typer.Option(min=256, help="Context in tokens.")] = None,
    threads: Annotated[int | None, typer.Option(min=1)] = None,
    gpu_layers: Annotated[int | None, typer.Option(min=-1, help="-1 for all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Let the model propose edits; commit those that the rule allows."""
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not as_json
    if not auto and not asks:
        raise UsageError("There is no terminal to approve commits on; pass --auto.")
    flags = wiring.Flags(
        model=model,
        attempts=attempts,
        temperature=temperature,
        edit_format=edit_format,
        sandbox=sandbox,
        n_ctx=n_ctx,
        threads=threads,
        gpu_layers=gpu_layers,
    )
    approve = None if auto else ask_for_approval
    with cancel_on_interrupt() as cancel:
        events = wiring.run(workspace, task, flags, seed, approve, cancel)
        raise typer.Exit(show_run(events, as_json))


def show_run(events: Iterator[Event], as_json: bool) -> int:
    """Print a run as it happens; the exit code that its end stands for."""
    code = 1
    for event in events:
        show_event(event, as_json)
        if isinstance(event, RunEnded):
            code = console.EXIT_CODES[event.outcome]
    return code


def show_event(event: Event, as_json: bool) -> None:
    """Print one event, at once."""
    if as_json:
        say(json.dumps(event_json(event)))
    else:
        for line in console.lines(event):
            say(line)
    sys.stdout.flush()


def ask_for_approval(diff: str, warnings: tuple[str, ...]) -> tuple[bool, str]:
    """Show the verified change and ask; a refusal may carry a reason."""
    say(sanitise(diff))
    if typer.confirm("Commit this change?"):
        return True, ""
    return False, typer.prompt("Why not? (may be empty)", default="", show_default=False)


@app.command()
def demo(
    folder: Annotated[Path | None, typer.Argument(help="A new or empty folder.")] = None,
    headless: Annotated[bool, typer.Option("--headless", help="Plain lines, no screen.")] = False,
    model: ModelOption = None,
    seed: Annotated[int | None, typer.Option(help="Random if not given.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Watch the embedded model repair a small broken project under the commit rule."""
    screen = sys.stdout.isatty() and sys.stdin.isatty() and not headless and not as_json
    with wiring.demo_workspace(folder) as workspace:
        if not as_json and not screen:
            say(f"workspace  {workspace}")
        if screen:
            ended = wiring.show_demo(workspace, model, seed)
            raise typer.Exit(console.EXIT_CODES[ended.outcome] if ended else 130)
        with cancel_on_interrupt() as cancel:
            code = show_run(wiring.run_demo(workspace, model, seed, cancel), as_json)
        damage = wiring.fsck(workspace, "")
        if not as_json:
            say(f"fsck       {'clean' if not damage else 'damaged'}")
    raise typer.Exit(1 if damage else code)


@app.command()
def serve(
    model: Annotated[str, typer.Option("--model", "-m", help="As for `run`.")],
    socket: Annotated[Path | None, typer.Option(help="Listen on a Unix socket.")] = None,
    host: Annotated[str, typer.Option(help="Loopback only.")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 picks one.")] = None,
    api_key: Annotated[str, typer.Option(envvar="VERILOOP_API_KEY", help="For a port.")] = "",
    n_ctx: Annotated[int | None, typer.Option(min=256)] = None,
    threads: Annotated[int | None, typer.Option(min=1)] = None,
    gpu_layers: Annotated[int | None, typer.Option(min=-1)] = None,
) -> None:
    """Run the engine by itself, for any OpenAI-compatible client."""
    if (socket is None) == (port is None):
        raise UsageError("Say where to listen: either --socket PATH or --port N.")
    flags = wiring.Flags(model=model, n_ctx=n_ctx, threads=threads, gpu_layers=gpu_layers)
    wiring.serve(flags, socket, host, port or 0, api_key)


@app.command()
def log(workspace: WorkspaceOption = HERE, as_json: JsonOption = False) -> None:
    """List bundles and attempts, oldest first."""
    rows = wiring.history(workspace)
    if as_json:
        say_json(rows)
        return
    for row in rows:
        say(console.history_line(row.time, row.bundle, row.event))
    if not rows:
        say("Nothing is recorded for this workspace yet.")


@app.command()
def show(
    ident: Annotated[str, typer.Argument(metavar="ID", help="A bundle's id, or its start.")],
    workspace: WorkspaceOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Show one bundle: its rank, what verified it, what it is bound to."""
    bundle = wiring.bundle(workspace, ident)
    if as_json:
        say_json({"bundle_id": bundle.bundle_id, "bundle": bundle})
        return
    for line in console.bundle_lines(bundle):
        say(line)


@app.command()
def diff(
    old: Annotated[str, typer.Argument(help="A bundle's id, or its start.")],
    new: Annotated[str, typer.Argument(help="A bundle's id, or its start.")],
    workspace: WorkspaceOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Show what changed between two bundles."""
    changed = wiring.diff(workspace, old, new)
    if as_json:
        say_json(changed)
    else:
        say(changed.text)


@app.command()
def rollback(
    ident: Annotated[str, typer.Argument(metavar="ID", help="A bundle's id, or its start.")],
    workspace: WorkspaceOption = HERE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring back the files of an earlier bundle; recorded, and can be undone."""

    def confirmed(paths: tuple[str, ...], overwrites: tuple[str, ...]) -> bool:
        if not as_json:
            for path in paths:
                edited = "  (you edited this one)" if path in overwrites else ""
                say(f"  {one_line(path, 300)}{edited}")
        if yes:
            return True
        if as_json or not sys.stdin.isatty():
            raise UsageError("There is no terminal to ask on; pass --yes to roll back.")
        return typer.confirm("Bring these files back?")

    event = wiring.rollback(workspace, ident, confirmed)
    if event is None:
        raise typer.Exit(1)
    if as_json:
        say_json(event_json(event))
        return
    for line in console.lines(event):
        say(line)


@app.command()
def fsck(
    workspace: WorkspaceOption = HERE,
    head: Annotated[str, typer.Option(help="The ledger's hash as you noted it.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Check every recorded byte. Exit 0 clean, 1 damaged, and where."""
    damage = wiring.fsck(workspace, head)
    if as_json:
        say_json({"clean": not damage, "damage": damage})
    elif damage:
        for place in damage:
            say(one_line(f"{place.where}: {place.problem}", 500))
    else:
        say("clean")
    raise typer.Exit(1 if damage else 0)


@app.command()
def doctor(workspace: WorkspaceOption = HERE, as_json: JsonOption = False) -> None:
    """Tell what this machine offers, and what to do about what is missing."""
    findings = wiring.doctor(workspace)
    if as_json:
        say_json(tuple(findings))
        return
    for finding in findings:
        say(f"{'ok  ' if finding.ok else 'lack'} {finding.name}: {finding.found}")
        if finding.remedy:
            say(f"     {finding.remedy}")


def main() -> None:
    """Run the command line; every error is one sentence on standard error."""
    try:
        app()
    except Cancelled as error:
        fail(error)
    except VeriloopError as error:
        fail(error)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe went away, as `head` does.
        sys.stderr.close()
        sys.exit(1)


def fail(error: VeriloopError) -> None:
    """Say the error and end with its exit code."""
    typer.echo(f"veriloop: {sanitise(str(error))}", err=True)
    sys.exit(error.exit_code)
