"""What servers tell of themselves and of their refusals, in each dialect. Pure."""

from __future__ import annotations

import json
import math
import re
from dataclasses import MISSING, dataclass
from dataclasses import fields as fields_of
from email.utils import parsedate_to_datetime
from typing import Any, Final

from veriloop_tui.core.chat import ModelFacts
from veriloop_tui.engine.client.body import ServerKind
from veriloop_tui.engine.client.stream import count, fields, number, text
from veriloop_tui.errors import ContextTooLong, EngineError, EngineRefused

_NAME: Final = 300
_SENTENCE: Final = 1_000
_MAX_NOTICES: Final = 20
_MAX_MODELS: Final = 10_000
# vLLM, LM Studio, and several routers.
_CONTEXT_KEYS: Final = (
    "max_model_len",
    "max_context_length",
    "context_length",
    "context_window",
)
_VLLM_CONTEXT: Final = re.compile(r"maximum context length is (\d{1,12}) tokens")
_VLLM_PROMPT: Final = re.compile(r"(\d{1,12}) (?:input tokens|in the messages)")


@dataclass(frozen=True, slots=True)
class Listed:
    """A server's list of models: whose dialect it speaks, and each entry by the model's name."""

    kind: ServerKind
    models: dict[str, dict[str, Any]]


def listed(answer: dict[str, Any]) -> Listed:
    """The list that `GET /v1/models` gave; empty where it is none."""
    data = answer.get("data")
    entries = [fields(one) for one in data[:_MAX_MODELS]] if isinstance(data, list) else []
    models = {name: one for one in entries if (name := text(one.get("id"), _NAME))}
    return Listed(_kind(entries[0] if entries else {}), models)


def _kind(entry: dict[str, Any]) -> ServerKind:
    if _is_ours(fields(entry.get("meta"))):
        return "veriloop"
    return {"llamacpp": "llama.cpp", "vllm": "vllm"}.get(  # type: ignore[return-value]
        text(entry.get("owned_by"), _NAME), "other"
    )


def _is_ours(meta: dict[str, Any]) -> bool:
    return all(one.name in meta for one in fields_of(ModelFacts) if one.default is MISSING)


def model_facts(name: str, entry: dict[str, Any], where: str, n_ctx: int = 0) -> ModelFacts:
    """What is known of a served model; what the server leaves out is 0 or empty.

    `where` names the server, empty for our own engine, whose file's path is told. `n_ctx` is the
    context as the server told it elsewhere.
    """
    meta = fields(entry.get("meta"))
    size, parameters = count(meta, "size"), count(meta, "n_params")
    if _is_ours(meta):
        size, parameters = count(meta, "file_size"), count(meta, "parameters")
    told = [count(meta, "n_ctx"), n_ctx, *(count(entry, key) for key in _CONTEXT_KEYS)]
    notices = meta.get("notices")
    return ModelFacts(
        name=text(meta.get("name"), _NAME) or name,
        architecture=text(meta.get("architecture"), _NAME),
        path=where or text(meta.get("path")),
        file_size=size,
        parameters=parameters,
        # llama-server tells the file's type since 2025.
        quant=text(meta.get("quant"), _NAME) or text(meta.get("ftype"), _NAME),
        bpw=number(meta, "bpw") or (size * 8 / parameters if parameters else 0.0),
        n_ctx=next((one for one in told if one), 0),
        file_digest=text(meta.get("file_digest"), _NAME),
        template_hash=text(meta.get("template_hash"), _NAME),
        notices=tuple(
            text(one, _SENTENCE)
            for one in (notices[:_MAX_NOTICES] if isinstance(notices, list) else ())
        ),
    )


def refusal(status: int, body: bytes) -> EngineError:
    """The error that a refusing answer stands for."""
    try:
        answer = fields(json.loads(body))
    except (ValueError, RecursionError):
        answer = {}
    return refusal_in(status, answer) or EngineRefused(
        status, body[:500].decode("utf-8", "replace") or "no reason given"
    )


def refusal_in(status: int, answer: dict[str, Any]) -> EngineError | None:
    """The error that an object tells of, `None` if it tells of none."""
    # Older vLLMs, and frameworks in front of servers, have no `error` around it.
    error = answer.get("error") or answer.get("detail") or answer
    message = text(error) or text(fields(error).get("message"))
    n_prompt, n_ctx = count(fields(error), "n_prompt_tokens"), count(fields(error), "n_ctx")
    if not (n_prompt and n_ctx):
        n_prompt, n_ctx = _in_words(_VLLM_PROMPT, message), _in_words(_VLLM_CONTEXT, message)
    if n_prompt and n_ctx:
        return ContextTooLong(n_prompt, n_ctx)
    return EngineRefused(status, message[:2_000]) if message else None


def _in_words(pattern: re.Pattern[str], message: str) -> int:
    found = pattern.search(message)
    return int(found[1]) if found is not None else 0


def retry_after(headers: list[tuple[bytes, bytes]], now: float) -> float | None:
    """Seconds that a `Retry-After` header asks to wait, `None` without one; `now` since 1970."""
    value = next((v for name, v in headers if name.lower() == b"retry-after"), None)
    if value is None:
        return None
    asked = value.decode("latin-1").strip()
    try:
        seconds = float(asked)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(asked).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
