"""Conversations as a corpus, rendered through the base's own chat template.

The file is JSON lines, each `{"messages": [{"role": …, "content": …}, …]}` that ends with an
assistant's message. After each conversation stands the model's end token, as after an answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from quant.corpora.corpora import SHIPPED, Corpus, kind_of, read_source, read_text
from quant.worker import Worker
from veriloop_tui.core.chat import Message, Role
from veriloop_tui.core.ports import Cancel
from veriloop_tui.engine.answer.template import ChatTemplate
from veriloop_tui.engine.gguf.facts import check_loadable, read_facts
from veriloop_tui.errors import CorpusInvalid, EngineStartFailed

_WORKER: Final = "quant.corpora.child"
_ROLES: Final[dict[object, Role]] = {role: role for role in get_args(Role)}


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """What a vocabulary writes for the begin and the end of a text.

    `add_bos` says that tokenising puts the first one in front by itself.
    """

    bos: str
    eos: str
    add_bos: bool


def open_corpus(ref: str, base: Path, cancel: Cancel) -> Corpus:
    """The corpus that `ref` names: `prose`, `code`, `chat`, or a file by its ending.

    `base` lends its template to conversations. Raises `CorpusInvalid`, and for those also
    `TemplateError`, `ModelNotFound`, `ModelFileInvalid`, `EngineStartFailed`, `Cancelled`.
    """
    kind, path = SHIPPED.get(ref) or (kind_of(Path(ref)), Path(ref))
    name = ref if ref in SHIPPED else path.name
    if kind != "chat":
        return read_text(path, kind, name)
    facts = read_facts(base)
    check_loadable(facts)
    tokens = special_tokens(base, cancel)
    return render_chat(
        path, ChatTemplate(facts.chat_template, tokens.bos, tokens.eos), tokens, name
    )


def render_chat(path: Path, template: ChatTemplate, tokens: SpecialTokens, name: str) -> Corpus:
    """All conversations of a file, one after the other. Raises `CorpusInvalid`, `TemplateError`."""
    text, source = read_source(path)
    rendered = "".join(
        template.render(messages, continue_final_message=True) + tokens.eos
        for messages in _conversations(text, str(path))
    )
    # Tokenising adds it; twice would be a text that the model has never seen.
    if tokens.add_bos and tokens.bos:
        rendered = rendered.removeprefix(tokens.bos)
    return Corpus(name, "chat", rendered, True, (source,))


def special_tokens(model: Path, cancel: Cancel) -> SpecialTokens:
    """Ask llama.cpp, in a process of its own. Raises `EngineStartFailed`, `Cancelled`."""
    worker = Worker(_WORKER, str(model))
    lines = list(worker.lines(cancel))
    if worker.ending or not lines:
        problem = f"the vocabulary of {model.name} could not be read ({worker.ending})"
        raise EngineStartFailed(problem, worker.last_words)
    return SpecialTokens(**json.loads(lines[-1]))


def _conversations(text: str, path: str) -> Iterator[tuple[Message, ...]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _conversation(line, f"line {number}", path)


def _conversation(line: str, where: str, path: str) -> tuple[Message, ...]:
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        raise CorpusInvalid(path, f"{where} is not JSON") from None
    listed = found.get("messages") if isinstance(found, dict) else None
    if not isinstance(listed, list) or not listed:
        raise CorpusInvalid(path, f"{where} has no messages")
    messages = tuple(_message(one, where, path) for one in listed)
    if messages[-1].role != "assistant":
        raise CorpusInvalid(path, f"{where} does not end with a message of the assistant")
    return messages


def _message(found: Any, where: str, path: str) -> Message:
    role = _ROLES.get(str(found.get("role"))) if isinstance(found, dict) else None
    content = found.get("content") if isinstance(found, dict) else None
    if role is None or not isinstance(content, str):
        raise CorpusInvalid(path, f"{where} has a message without a known role or without text")
    return Message(role, content)
