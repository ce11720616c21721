"""What chat and text completions have in common: the fields of a request body, and their bounds."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from veriloop_tui.core.chat import Sampling
from veriloop_tui.errors import EngineRefused

STRICT: Final = ConfigDict(strict=True, allow_inf_nan=False)
MAX_CANDIDATES: Final = 64
NO_BOUND: Final = 1 << 31
_DEFAULTS: Final = Sampling()
_SAMPLING: Final = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty")
# Of OpenAI, llama-server and vLLM: what would change the answer. A value that says "not" is fine.
_REFUSED: Final = (
    *("logprobs", "top_logprobs", "logit_bias", "presence_penalty", "frequency_penalty"),
    *("best_of", "echo", "suffix", "functions", "function_call", "audio", "web_search_options"),
    *("reasoning_effort", "verbosity", "typical_p", "mirostat", "dry_multiplier"),
    *("xtc_probability", "dynatemp_range", "ignore_eos", "n_probs", "min_tokens"),
    *("stop_token_ids", "bad_words", "use_beam_search", "truncate_prompt_tokens", "samplers"),
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"),
)

StopText = Annotated[str, Field(min_length=1, max_length=1_000)]
Body = TypeVar("Body", bound=BaseModel)


class StreamOptions(BaseModel):
    """Options of a streamed answer."""

    model_config = STRICT

    include_usage: bool = False


class CompletionBody(BaseModel):
    """Fields of every completion.

    Unknown fields are ignored, as the protocol wants; those that would change the answer and are
    not supported are refused.
    """

    model_config = STRICT
    refused: ClassVar[tuple[str, ...]] = _REFUSED

    model: str = ""
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=1 << 31)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repeat_penalty: Annotated[float, Field(gt=0, le=10)] | None = Field(
        None, validation_alias=AliasChoices("repeat_penalty", "repetition_penalty")
    )
    seed: int | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=64)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CANDIDATES)] | None = None
    grammar: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_what_would_be_lost(cls, body: Any) -> Any:
        if isinstance(body, dict):
            for field in cls.refused:
                if body.get(field) not in (None, False, 0, "", [], {}):
                    raise ValueError(f"'{field}' is not supported by this engine")
        return body

    @model_validator(mode="after")
    def _bound_the_seed(self) -> Self:
        if self.seed is not None and abs(self.seed) >= 1 << 63:
            raise ValueError("'seed' must fit into 64 bits")
        return self

    @property
    def wants_usage(self) -> bool:
        """Whether the usage comes in a chunk of its own at the end of a stream."""
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling(self) -> Sampling:
        """The sampler settings; what is not said is our default."""
        given = {name: value for name in _SAMPLING if (value := getattr(self, name)) is not None}
        return Sampling(**{**asdict(_DEFAULTS), **given})

    def drawn_seed(self) -> int:
        """The seed; one is drawn where none is given."""
        return secrets.randbits(31) if self.seed is None else self.seed

    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


def parse(kind: type[Body], body: bytes) -> Body:
    """The body of a request. Raises `EngineRefused` (400) that names the field."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        message = f"{where}: {first['msg']}" if where else str(first["msg"])
        raise EngineRefused(400, message) from None
