"""The body of a chat request, in the dialect of the server that it is for. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from veriloop_tui.core.chat import ChatRequest, Grammar, JsonSchema, Message, Sampling, Tool

ServerKind = Literal["veriloop", "llama.cpp", "vllm", "other"]


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a server takes beyond the plain protocol.

    `seed`: the same answer for the same seed; `samplers`: top_k, min_p and the repeat penalty;
    `continues`: goes on from a begun answer; `candidates`: several at once; `template_values`:
    values for the chat template; `timings`: tells its own.
    """

    kind: ServerKind
    seed: bool = True
    samplers: bool = True
    continues: bool = True
    candidates: bool = True
    schema: bool = True
    grammar: bool = True
    template_values: bool = True
    timings: bool = True

    @property
    def bounds_thinking(self) -> bool:
        """Whether thinking gets a budget of its own; elsewhere only `max_tokens` bounds it.

        vLLM 0.17 has none, and later ones refuse it unless the server was started for it.
        """
        return self.kind in ("veriloop", "llama.cpp")


OWN = Abilities("veriloop")


class LackingError(Exception):
    """A request needs what the server lacks; both completed in `ServerLacks`."""

    def __init__(self, lacking: str, remedy: str) -> None:
        self.lacking, self.remedy = lacking, remedy
        super().__init__(lacking)


def body(request: ChatRequest, model: str, able: Abilities) -> dict[str, Any]:
    """What to POST to `/v1/chat/completions`; nothing that was not asked for.

    Raises `LackingError` where leaving something out would change what the answer means.
    """
    made: dict[str, Any] = {
        "messages": [_message(message, able.kind) for message in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": request.max_tokens,
        **_sampling(request.sampling, able),
    }
    if model:
        made["model"] = model
    if able.seed:
        made["seed"] = request.seed
    if request.stop:
        made["stop"] = list(request.stop)
    if request.continue_final_message:
        if not able.continues:
            raise LackingError("going on from a begun answer", "use --edit-format search-replace")
        # vLLM wants the second beside the first.
        made |= {"continue_final_message": True, "add_generation_prompt": False}
    if request.n > 1:
        if not able.candidates:
            raise LackingError("several candidates at once", "ask for one")
        made["n"] = request.n
    if request.tools:
        made["tools"] = [_tool(tool) for tool in request.tools]
    if request.must_call:
        made["tool_choice"] = _tool_choice(request, able.kind)
    if request.template_values and able.template_values:
        made["chat_template_kwargs"] = dict(request.template_values)
    if request.thinking_tokens is not None and able.bounds_thinking:
        made["reasoning_budget_tokens"] = request.thinking_tokens
    match request.structure:
        case None:
            pass
        case JsonSchema():
            if not able.schema:
                raise LackingError("answers by a JSON schema", "ask without one")
            made["response_format"] = _response_format(request.structure)
        case Grammar():
            if not able.grammar:
                raise LackingError("answers by a grammar", "ask without one")
            made |= _grammar(request.structure, able.kind)
        case _:
            assert_never(request.structure)
    return made


def _sampling(sampling: Sampling, able: Abilities) -> dict[str, Any]:
    plain = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    if not able.samplers:
        return plain
    penalty = "repetition_penalty" if able.kind == "vllm" else "repeat_penalty"
    return {
        **plain,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        penalty: sampling.repeat_penalty,
    }


def _response_format(structure: JsonSchema) -> dict[str, Any]:
    schema = {"name": "answer", "strict": True, "schema": json.loads(structure.schema)}
    return {"type": "json_schema", "json_schema": schema}


def _grammar(structure: Grammar, kind: ServerKind) -> dict[str, Any]:
    if kind == "vllm":
        return {"structured_outputs": {"grammar": structure.gbnf}}
    return {"grammar": structure.gbnf}


def _message(message: Message, kind: ServerKind) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        made["reasoning" if kind == "vllm" else "reasoning_content"] = message.reasoning
    if message.tool_calls:
        made["tool_calls"] = [
            {
                "id": call.ident,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        made["tool_call_id"] = message.tool_call_id
    return made


def _tool_choice(request: ChatRequest, kind: ServerKind) -> str | dict[str, Any]:
    if set(request.must_call) == {tool.name for tool in request.tools}:
        return "required"
    # llama-server reads this form as if nothing had been said.
    if len(request.must_call) == 1 and kind != "llama.cpp":
        return {"type": "function", "function": {"name": request.must_call[0]}}
    raise LackingError("making the model call some of its tools", "offer it those alone")


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": json.loads(tool.parameters)}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}
