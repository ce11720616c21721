"""The `Proposer`: from what is known of a workspace to a candidate, through one answer."""

from __future__ import annotations

from collections.abc import Callable, Generator

from veriloop_tui.core.canonical import digest
from veriloop_tui.core.chat import (
    ChatFinished,
    ChatRequest,
    FinishReason,
    ModelFacts,
    Sampling,
    TextDelta,
    Timings,
    Usage,
)
from veriloop_tui.core.ports import (
    Asked,
    Cancel,
    ChatModel,
    InvalidAnswer,
    Proposal,
    ProposalContext,
    Snapshots,
)
from veriloop_tui.core.snapshot import Candidate, SnapshotId
from veriloop_tui.errors import InvalidEdit
from veriloop_tui.proposer.conversation import conversation_prompt
from veriloop_tui.proposer.edit import parse_edits
from veriloop_tui.proposer.form import EditFormat, Form, choose_form
from veriloop_tui.proposer.function_form import function_prompt
from veriloop_tui.proposer.prompt import Prompt
from veriloop_tui.proposer.resolve import Ground, resolve
from veriloop_tui.proposer.target import find_targets
from veriloop_tui.proposer.workspace import Workspace

# A server that is not ours may not tell its context; the least that one for code has.
ASSUMED_N_CTX = 8192
DEFAULT_SAMPLING = Sampling(temperature=0.7)


class ModelProposer:
    """Asks `model` in the form that fits it. Keeps nothing between attempts."""

    def __init__(
        self,
        model: ChatModel,
        snapshots: Snapshots,
        protects: Callable[[str], bool],
        edit_format: EditFormat = "auto",
        sampling: Sampling = DEFAULT_SAMPLING,
    ) -> None:
        self._model = model
        self._snapshots = snapshots
        self._protects = protects
        self._edit_format = edit_format
        self._sampling = sampling

    def propose(
        self, context: ProposalContext, cancel: Cancel
    ) -> Generator[Asked | str, None, Proposal]:
        """As the port says. Raises `EngineError`."""
        files = _Files(self._snapshots, context.base)
        workspace = Workspace(files.paths, files.read_or_none, self._protects)
        prompt = self._prompt(context, workspace, self._model.facts())
        yield Asked(prompt.form.value, prompt.target, digest(prompt.messages), self._sampling)
        pieces = [prompt.prefill] if prompt.prefill else []
        yield from pieces
        finished = ChatFinished("cancelled", Usage(0, 0, 0), Timings(0.0, 0.0))
        for event in self._model.complete(self._request(prompt, context), cancel):
            match event:
                case TextDelta():
                    pieces.append(event.text)
                    yield event.text
                case ChatFinished():
                    finished = event
        text = "".join(pieces)
        return Proposal(
            text=text,
            finish_reason=finished.finish_reason,
            usage=finished.usage,
            timings=finished.timings,
            result=self._read(text, finished.finish_reason, prompt, context.base, files),
        )

    def _prompt(self, context: ProposalContext, workspace: Workspace, facts: ModelFacts) -> Prompt:
        form = choose_form(self._edit_format, facts.parameters, context.memory)
        n_ctx = facts.n_ctx or ASSUMED_N_CTX
        max_tokens = max(1, min(context.max_tokens, n_ctx // 2))
        if form is Form.FUNCTION:
            targets = find_targets(workspace, context.failing)
            if targets:
                rounds, index = divmod(max(0, context.attempt - 1), len(targets))
                target = targets[index]
                content = workspace.read(target.path) or b""
                return function_prompt(target, content, rounds % 2 == 1, max_tokens)
            form = Form.FILE
        return conversation_prompt(context, workspace, form, n_ctx, max_tokens)

    def _request(self, prompt: Prompt, context: ProposalContext) -> ChatRequest:
        return ChatRequest(
            messages=prompt.messages,
            sampling=self._sampling,
            seed=context.seed,
            max_tokens=prompt.max_tokens,
            stop=prompt.stop,
            continue_final_message=bool(prompt.prefill),
        )

    def _read(
        self, text: str, reason: FinishReason, prompt: Prompt, base: SnapshotId, files: _Files
    ) -> Candidate | InvalidAnswer:
        if reason == "cancelled":
            return InvalidAnswer("the answer was stopped before its end")
        ground = Ground(
            read=files.read,
            mode=files.mode,
            protects=self._protects,
            shown_whole=prompt.shown_whole,
            named=prompt.named,
            qualname=prompt.qualname,
        )
        try:
            return Candidate(base, resolve(parse_edits(without_thoughts(text)), ground))
        except InvalidEdit as error:
            cut = " (the answer was cut off at its limit of tokens)" if reason == "length" else ""
            return InvalidAnswer(error.problem + cut, error.path, error.nearest)


def without_thoughts(text: str) -> str:
    """The answer after its thinking, which the template may have opened already.

    Raises `InvalidEdit` where the thinking never ended.
    """
    opened = text.lstrip().startswith("<think>")
    _, ended, answer = text.partition("</think>")
    if opened and not ended:
        raise InvalidEdit("the answer ended while the model was still thinking")
    return answer if ended and (opened or "<think>" not in text) else text


class _Files:
    """The regular files of one snapshot."""

    def __init__(self, snapshots: Snapshots, base: SnapshotId) -> None:
        self._snapshots = snapshots
        self._base = base
        self._entries = snapshots.entries(base)
        self.paths = frozenset(p for p, entry in self._entries.items() if entry.kind == "file")

    def read_or_none(self, path: str) -> bytes | None:
        return self._snapshots.read(self._base, path) if path in self.paths else None

    def read(self, path: str) -> bytes | None:
        """Raises `InvalidEdit` for a link or a directory."""
        entry = self._entries.get(path)
        if entry is not None and entry.kind != "file":
            raise InvalidEdit(f"is a {entry.kind}, not a file", path)
        return self.read_or_none(path)

    def mode(self, path: str) -> int | None:
        entry = self._entries.get(path)
        return None if entry is None else entry.mode
