"""What is asked of a model and what comes back, in the OpenAI chat protocol's terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["system", "user", "assistant", "tool"]
FinishReason = Literal["stop", "length", "tool_calls", "cancelled"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for; `arguments` is JSON text as the model wrote it."""

    ident: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call; `parameters` is its JSON schema, as JSON text."""

    name: str
    description: str
    parameters: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    `reasoning` and `tool_calls` belong to the assistant's, `tool_call_id` to a tool's answer.
    """

    role: Role
    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""


@dataclass(frozen=True, slots=True)
class Grammar:
    """The answer must match this grammar, in llama.cpp's GBNF."""

    gbnf: str


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """The answer must be a JSON document that fits this schema, given as JSON text."""

    schema: str


Structure = Grammar | JsonSchema
TemplateValue = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampler settings. Temperature 0 means greedy; a `None` leaves the engine's default."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One completion to make.

    With `continue_final_message` the last message is the assistant's and the answer goes on from
    its text. `max_tokens` bounds the answer, thinking included; `seed` fixes the sampler's
    randomness, and candidate i of `n` draws with `seed + i`. `thinking_tokens` bounds the thinking
    (`None`: what leaves room for an answer). `template_values` reach the chat template by name.
    `must_call` names tools of which the answer must call at least one; empty: the model decides.
    """

    messages: tuple[Message, ...]
    sampling: Sampling
    seed: int
    max_tokens: int
    stop: tuple[str, ...] = ()
    continue_final_message: bool = False
    n: int = 1
    structure: Structure | None = None
    tools: tuple[Tool, ...] = ()
    thinking_tokens: int | None = None
    template_values: tuple[tuple[str, TemplateValue], ...] = ()
    must_call: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request; `reused` of the prompt's tokens came from the KV cache.

    Of the completion's tokens, over all candidates, `accepted` came out of `drafted` ones.
    """

    prompt_tokens: int
    completion_tokens: int
    reused_tokens: int
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def evaluated_tokens(self) -> int:
        """Prompt tokens that had to be evaluated."""
        return self.prompt_tokens - self.reused_tokens


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds spent in the prompt and in generation."""

    prompt_ms: float
    predicted_ms: float


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of a candidate's answer."""

    text: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """The next piece of a candidate's thinking."""

    text: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A whole call of a tool, in the order in which a candidate makes them."""

    call: ToolCall
    index: int = 0


@dataclass(frozen=True, slots=True)
class MalformedCall:
    """What looked like a call of a tool and was none: its text, and what is wrong with it."""

    text: str
    problem: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class CandidateEnded:
    """One of several candidates has ended; with one candidate, `ChatFinished` says it all."""

    index: int
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class ChatFinished:
    """The end of all candidates, with what they cost; the reason is the first candidate's."""

    finish_reason: FinishReason
    usage: Usage
    timings: Timings


ChatEvent = TextDelta | ReasoningDelta | ToolCalled | MalformedCall | CandidateEnded | ChatFinished


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of a loaded model: from its GGUF header and the live context.

    `file_digest` is a sha256 over the file's header and its size and ends (hashing 20 GiB at each
    start would cost a minute), `template_hash` the sha256 of its chat template, empty if it has
    none. `n_ctx` is the live context in tokens; `bpw` is bits per weight over all tensors. `path`
    is the server's address where another server holds the file. `notices` say what the engine had
    to do without, in sentences.
    """

    name: str
    architecture: str
    path: str
    file_size: int
    parameters: int
    quant: str
    bpw: float
    n_ctx: int
    file_digest: str
    template_hash: str
    notices: tuple[str, ...] = ()
