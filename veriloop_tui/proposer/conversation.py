"""The conversational forms: everything once, then answer and outcome of each attempt.

For one incumbent the prompt of the next attempt is that of this one with something added at its
end, so that only the new part has to be evaluated. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from veriloop_tui.core.chat import Message
from veriloop_tui.core.excerpt import excerpt, one_line
from veriloop_tui.core.obligation import CheckOutcome
from veriloop_tui.core.ports import ProposalContext
from veriloop_tui.proposer.form import Form
from veriloop_tui.proposer.prompt import Prompt, prompt_chars
from veriloop_tui.proposer.rules import system_text
from veriloop_tui.proposer.show import show_files
from veriloop_tui.proposer.workspace import Workspace, relevant_files

# Shares of the room; what is left is the conversation's, so that the files stay as it grows.
_TASK_SHARE, _FAILING_SHARE, _FILES_SHARE = 0.1, 0.15, 0.5
_FAILING_SHOWN = 12
_EXCERPT = 1200
_NAME = 200
_FORGET_BY = 4
_LOST_ANSWER = "(The answer was not kept.)"


def conversation_prompt(
    context: ProposalContext, workspace: Workspace, form: Form, n_ctx: int, max_tokens: int
) -> Prompt:
    """Ask for edits in `form`, with all that fits of files, failures and earlier attempts."""
    system = system_text(form)
    room = max(0, prompt_chars(n_ctx, max_tokens) - len(system))
    task = excerpt(context.task, int(room * _TASK_SHARE)) or "Make the failing checks pass."
    failing = _failing(context.failing, int(room * _FAILING_SHARE))
    files = show_files(
        workspace,
        relevant_files(workspace, context.task, context.failing),
        context.failing,
        int(room * _FILES_SHARE),
    )
    parts = [f"# Task\n\n{task}", files.text, failing, _REQUEST[form]]
    opening = "\n\n".join(part for part in parts if part)
    return Prompt(
        form=form,
        target="",
        messages=(
            Message("system", system),
            Message("user", opening),
            *_earlier(context, form, room - len(opening)),
        ),
        max_tokens=max_tokens,
        named=files.only_editable,
        shown_whole=files.shown_whole,
    )


_REQUEST = {
    Form.SEARCH_REPLACE: "Propose edits as SEARCH/REPLACE blocks.",
    Form.FILE: "Propose edits as whole files.",
    Form.FUNCTION: "Propose edits as whole files.",
}


def _failing(failing: Sequence[CheckOutcome], room: int) -> str:
    """The unsatisfied checks, each with its share of the room for what it printed."""
    if not failing:
        return ""
    shown = failing[:_FAILING_SHOWN]
    each = min(_EXCERPT, max(0, room // len(shown) - _NAME))
    lines = [f"# Checks that are not satisfied ({len(failing)})"]
    for outcome in shown:
        lines.append(f"## {one_line(str(outcome.check), _NAME)}")
        if outcome.excerpt and each:
            lines.append(excerpt(outcome.excerpt, each).strip("\n"))
    if len(failing) > len(shown):
        lines.append(f"({len(failing) - len(shown)} more are not shown.)")
    return "\n".join(lines)


def _earlier(context: ProposalContext, form: Form, room: int) -> tuple[Message, ...]:
    """Answer and outcome of each attempt; where they do not fit, the oldest go, several at a time.

    Going several at a time keeps the beginning the same for the next few attempts.
    """
    missing = len(context.history) - len(context.answers)
    answers = (*[""] * missing, *context.answers)
    turns = [
        (answer.strip() or _LOST_ANSWER, f"{evidence.text}\n\n{_REQUEST[form]}")
        for answer, evidence in zip(answers, context.history, strict=False)
    ]
    forgotten = 0
    while turns and sum(len(a) + len(e) for a, e in turns) > room:
        forgotten += len(turns[:_FORGET_BY])
        turns = turns[_FORGET_BY:]
    messages: list[Message] = []
    for index, (answer, outcome) in enumerate(turns):
        note = f"({forgotten} earlier attempts were left out.)\n" if forgotten and not index else ""
        messages += [Message("assistant", answer), Message("user", f"{note}{outcome}")]
    return tuple(messages)
