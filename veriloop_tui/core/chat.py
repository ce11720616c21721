"""What is asked of a model and what comes back, in the OpenAI chat protocol's terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str


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
    its text. `max_tokens` bounds the answer; `seed` fixes the sampler's randomness.
    """

    messages: tuple[Message, ...]
    sampling: Sampling
    seed: int
    max_tokens: int
    stop: tuple[str, ...] = ()
    continue_final_message: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request; `reused` of the prompt's tokens came from the KV cache."""

    prompt_tokens: int
    completion_tokens: int
    reused_tokens: int

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
    """The next piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ChatFinished:
    """The end of the answer, with what it cost."""

    finish_reason: FinishReason
    usage: Usage
    timings: Timings


ChatEvent = TextDelta | ChatFinished


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of a loaded model: from its GGUF header and the live context.

    `file_digest` is a sha256 over the file's header and its size and ends (hashing 20 GiB at each
    start would cost a minute), `template_hash` the sha256 of its chat template, empty if it has
    none. `n_ctx` is the live context in tokens; `bpw` is file bits per parameter.
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
