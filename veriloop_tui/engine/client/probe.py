"""Look at another server before it is relied on: who it is, what it answers, what it takes.

The smoke test is the one that VeriLoop E2's card asks for: at temperature 0 the answer must be
`8001_OK`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

from veriloop_tui.core.chat import ChatEvent, ChatRequest, ModelFacts
from veriloop_tui.core.excerpt import one_line
from veriloop_tui.core.ports import Cancel
from veriloop_tui.engine.client import facts as chat_facts
from veriloop_tui.engine.client.body import Abilities, ServerKind
from veriloop_tui.engine.client.client import Endpoint, EngineClient
from veriloop_tui.engine.client.stream import GarbledError, count, fields, json_object, text
from veriloop_tui.engine.client.trials import WANTED, Smoke, Trials
from veriloop_tui.errors import ServerFailed, UsageError

_SHOWN: Final = 100
_SHOWN_MODELS: Final = 20


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found out about a server. `endpoint` names the model that was asked."""

    endpoint: Endpoint
    version: str
    facts: ModelFacts
    smoke: Smoke
    able: Abilities

    def lacking(self) -> tuple[str, ...]:
        """What it was not seen to do, for people."""
        able = self.able
        named = {
            "the same answer for the same seed": able.seed,
            "top_k, min_p and a repeat penalty": able.samplers,
            "going on from a begun answer": able.continues,
            "several candidates at once": able.candidates,
            "JSON schemas": able.schema,
            "grammars": able.grammar,
            "a limit of its own for thinking": able.bounds_thinking,
            "timings": able.timings,
        }
        return tuple(name for name, there in named.items() if not there)

    def smoke_sentence(self) -> str:
        """How the smoke test went."""
        smoke = self.smoke
        if smoke.passed:
            return f"Smoke test passed: the model answered {WANTED} after {smoke.seconds:.1f} s."
        return (
            f"Smoke test failed: told to reply with {WANTED} at temperature 0, the model said "
            f"'{one_line(smoke.answer, _SHOWN)}'. VeriLoop E2 passes it: if this is meant to be "
            "one, its weights, chat template or quant are wrong. Small models often fail it."
        )

    def sentences(self) -> tuple[str, ...]:
        """What the user should know before relying on it."""
        facts = self.facts
        context = f"context {facts.n_ctx}" if facts.n_ctx else "its context is not told"
        said = [
            f"The model is served by {facts.path} ({self.version}): "
            f"{one_line(facts.name, _SHOWN)}, {context}.",
            self.smoke_sentence(),
        ]
        if lacking := self.lacking():
            said.append(f"Not seen to be offered by this server: {', '.join(lacking)}.")
        return (*said, *facts.notices)


class ProbedModel:
    """The `ChatModel` of a server that was probed: asked for no more than it was seen to take."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self._client = EngineClient(probe.endpoint, able=probe.able)

    def facts(self) -> ModelFacts:
        """What was found out, with what the user should know of it as notices."""
        return replace(self.probe.facts, notices=self.probe.sentences())

    def complete(self, request: ChatRequest, cancel: Cancel) -> Iterator[ChatEvent]:
        """The model's answer. Raises `EngineError`."""
        return self._client.complete(request, cancel)


def probe(endpoint: Endpoint, cancel: Cancel) -> Probe:
    """Ask a server of any kind, with about ten short requests.

    Raises `UsageError` for a model that it does not have, `ServerFailed`, `EngineRefused`,
    `Cancelled`.
    """
    listing, name = _choose(endpoint, cancel)
    endpoint = replace(endpoint, model=name)
    version, n_ctx = _more(EngineClient(endpoint), listing.kind, cancel)
    entry = listing.models.get(name, {})
    facts = chat_facts.model_facts(name, entry, endpoint.base_url, n_ctx)
    smoke, able = Trials(lambda able: EngineClient(endpoint, able=able), listing.kind, cancel).run()
    return Probe(endpoint, version, facts, smoke, able)


def _choose(endpoint: Endpoint, cancel: Cancel) -> tuple[chat_facts.Listed, str]:
    """The list of models, and the one to ask."""
    where, wanted = endpoint.base_url, endpoint.model
    status, answer = EngineClient(endpoint).get("/v1/models", cancel)
    if status in (401, 403):
        problem = f"it refuses the key ({status}); set VERILOOP_SERVER_KEY to the right one"
        raise ServerFailed(where, problem)
    if status in (404, 405) and wanted:
        return chat_facts.Listed("other", {}), wanted
    if status != 200:
        raise chat_facts.refusal(status, answer)
    try:
        listing = chat_facts.listed(json_object(answer))
    except GarbledError as garbled:
        raise ServerFailed(where, garbled.problem) from garbled
    names = tuple(listing.models)
    if not names:
        raise ServerFailed(where, "its list of models is empty")
    if wanted in names:
        return listing, wanted
    if not wanted and len(names) == 1:
        return listing, names[0]
    shown = ", ".join(one_line(name, _SHOWN) for name in names[:_SHOWN_MODELS])
    problem = f"has no model '{one_line(wanted, _SHOWN)}'" if wanted else "has several models"
    raise UsageError(f"The server {where} {problem}; name one with --server-model: {shown}.")


def _more(client: EngineClient, kind: ServerKind, cancel: Cancel) -> tuple[str, int]:
    """The server's version, for people, and the context where `/v1/models` may not tell it."""
    match kind:
        case "llama.cpp":
            props = _document(client, "/props", cancel)
            n_ctx = count(fields(props.get("default_generation_settings")), "n_ctx")
            return f"llama-server {_short(props.get('build_info'))}".strip(), n_ctx
        case "vllm":
            return f"vLLM {_short(_document(client, '/version', cancel).get('version'))}".strip(), 0
        case "veriloop":
            return "another VeriLoop", 0
        case "other":
            return "a server of a kind that is not known", 0
        case _:
            assert_never(kind)


def _document(client: EngineClient, path: str, cancel: Cancel) -> dict[str, Any]:
    """What a server tells there; nothing where it tells nothing."""
    status, answer = client.get(path, cancel)
    try:
        return json_object(answer) if status == 200 else {}
    except GarbledError:
        return {}


def _short(value: object) -> str:
    return one_line(text(value), 60)
