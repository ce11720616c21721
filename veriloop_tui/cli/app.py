"""The command line: arguments in, exit codes out. Everything else is behind `wiring`.

Exit codes: 0 complete (or clean), 1 ended without completing (or damaged), 2 usage or contract,
3 baseline not rankable, 4 engine failure, 5 nothing to improve, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from veriloop_tui import __version__, wiring
from veriloop_tui.cli import bench, fit, lines, models, quant, run, serve
from veriloop_tui.cli.options import (
    HERE,
    DraftOption,
    ModelOption,
    SandboxOption,
    ServerModelOption,
    ServerOption,
    WorkspaceOption,
)
from veriloop_tui.cli.output import JsonOption, cancel_on_interrupt, say, say_json
from veriloop_tui.cli.run import show_event
from veriloop_tui.core.event import IncumbentMeasured, event_json
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

app.command()(run.run)
app.command()(run.demo)
app.command()(serve.serve)
app.command()(bench.bench)
models.app.command()(fit.inspect)
models.app.command()(fit.fit)
app.add_typer(models.app)
# Its own options, --help too, are read by the commands behind it.
app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(quant.quant)


@app.callback(invoke_without_command=True)
def open_app(
    context: typer.Context,
    workspace: WorkspaceOption = HERE,
    model: ModelOption = None,
    draft: DraftOption = None,
    server: ServerOption = None,
    server_model: ServerModelOption = None,
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
    flags = wiring.Flags(
        model=model, draft=draft, server=server, server_model=server_model, sandbox=sandbox
    )
    ended = wiring.open_terminal(workspace, flags)
    raise typer.Exit(lines.EXIT_CODES[ended.outcome] if ended else 0)


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
    server: Annotated[
        str | None, typer.Option(help="Let a server be sent the text of workspaces instead.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Let the commands of the contract run, after showing them."""
    if server is not None:
        trust_server(server, yes)
        return
    question = wiring.trust_question(workspace)
    for line in question.lines:
        say(line)
    if question.trusted:
        say("This contract is trusted already.")
        return
    confirm("Trust these commands?", yes)
    wiring.trust(workspace, question)
    say("Trusted.")


def trust_server(url: str, yes: bool) -> None:
    """Let the text of workspaces go to a server, after saying what that means."""
    question = wiring.server_question(url)
    for line in question.lines:
        say(line)
    if question.allowed:
        say(f"{question.origin} is allowed already.")
        return
    confirm(f"Let {question.origin} see the text of your workspaces?", yes)
    wiring.allow_server(url)
    say("Allowed.")


def confirm(text: str, yes: bool) -> None:
    """Ask, unless the answer was given; end with exit code 1 where it is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("There is no terminal to ask on; pass --yes to agree.")
    if not typer.confirm(text):
        raise typer.Exit(1)


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
                        for line in lines.failing_excerpts(status):
                            say(line)
    raise typer.Exit(0 if satisfied else 1)


@app.command()
def log(workspace: WorkspaceOption = HERE, as_json: JsonOption = False) -> None:
    """List bundles and attempts, oldest first."""
    rows = wiring.history(workspace)
    if as_json:
        say_json(rows)
        return
    for row in rows:
        say(lines.history_line(row.time, row.bundle, row.event))
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
    for line in lines.bundle_lines(bundle):
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
    for line in lines.lines(event):
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
