"""The bodies of `POST /v1/completions`, `/tokenize` and `/detokenize`."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, Field, model_validator

from veriloop_tui.core.chat import TemplateValue
from veriloop_tui.engine.answer.prepare import TextRequest
from veriloop_tui.engine.serving.wire_chat import ChatMessage, OfferedTool
from veriloop_tui.engine.serving.wire_fields import STRICT, CompletionBody

# What the protocol says where nothing is said.
_DEFAULT_TOKENS: Final = 16
_MAX_TOKENS_IN: Final = 1 << 21

Token = Annotated[int, Field(ge=0, lt=1 << 31)]


class TextBody(CompletionBody):
    """The body of a completion of a text, or of tokens, without a chat template."""

    prompt: str | Annotated[list[Token], Field(max_length=_MAX_TOKENS_IN)]

    @model_validator(mode="before")
    @classmethod
    def _one_prompt(cls, body: Any) -> Any:
        prompt = body.get("prompt") if isinstance(body, dict) else None
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
            if len(prompt) > 1:
                raise ValueError("'prompt' must be one prompt: send one request for each")
            return {**body, "prompt": prompt[0]}
        return body

    def core(self) -> TextRequest:
        """The request in our own terms; a missing seed is drawn."""
        return TextRequest(
            prompt=self.prompt if isinstance(self.prompt, str) else tuple(self.prompt),
            sampling=self.sampling(),
            seed=self.drawn_seed(),
            max_tokens=self.max_tokens or _DEFAULT_TOKENS,
            stop=self.stops(),
            n=self.n or 1,
            grammar=self.grammar or "",
        )


class TokeniseBody(BaseModel):
    """A text to tokenise as it is, or messages to render first, as a chat completion would."""

    model_config = STRICT

    content: str | None = None
    add_special: bool = False
    with_pieces: bool = False
    messages: Annotated[list[ChatMessage], Field(min_length=1)] | None = None
    tools: list[OfferedTool] | None = None
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, TemplateValue] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.content is None) == (self.messages is None):
            raise ValueError("give either 'content' or 'messages'")
        return self


class DetokeniseBody(BaseModel):
    """Tokens to write out."""

    model_config = STRICT

    tokens: Annotated[list[Token], Field(max_length=_MAX_TOKENS_IN)]
