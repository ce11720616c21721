"""From a request to what the decode loop is asked for. Pure but for what is passed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from veriloop_tui.core.chat import ChatRequest, Grammar, JsonSchema, Sampling
from veriloop_tui.engine.answer.reading import AnswerForm
from veriloop_tui.engine.answer.reasoning import bounds, thinking_tokens
from veriloop_tui.engine.answer.template import ChatTemplate
from veriloop_tui.engine.answer.tool_grammar import calls_grammar
from veriloop_tui.engine.grammar import gbnf
from veriloop_tui.engine.grammar.schema import schema_grammar
from veriloop_tui.engine.job import Job, ThinkingBounds
from veriloop_tui.errors import ContextTooLong, EngineRefused

Tokenise = Callable[[str], list[int]]

_THINKING_SWITCHES: Final = ("enable_thinking", "thinking")


def prepare(request: ChatRequest, template: ChatTemplate, tokenise: Tokenise, n_ctx: int) -> Job:
    """Render the prompt, count it, and say what holds for the answer.

    Raises `TemplateError`, `ContextTooLong`, `EngineRefused` (400) for a structure that cannot be
    held.
    """
    text = template.render(
        request.messages, request.continue_final_message, request.tools, request.template_values
    )
    grammar = _grammar(request, template)
    prompt = _counted(tokenise(text), n_ctx)
    opened = _opened(text, request, template)
    thinking: ThinkingBounds | None = None
    if opened or (template.thinks and not _switched_off(request)):
        closing = template.markers.closing
        room = min(request.max_tokens, (n_ctx - len(prompt)) // request.n)
        tokens = thinking_tokens(room, request.thinking_tokens, len(tokenise(closing)))
        if opened and tokens < 1:
            # Nothing may be thought, so the answer begins at once.
            text += closing
            prompt = _counted(tokenise(text), n_ctx)
            opened = False
        else:
            thinking = bounds(template.markers, max(1, tokens), opened=opened)
    return Job(
        prompt=prompt,
        text=text,
        sampling=request.sampling,
        seed=request.seed,
        max_tokens=request.max_tokens,
        stop=request.stop,
        n=request.n,
        grammar=grammar,
        lazy_after=template.markers.end if grammar and opened else "",
        thinking=thinking,
    )


def answer_form(request: ChatRequest, template: ChatTemplate, job: Job) -> AnswerForm:
    """How the answer to a request is to be read."""
    opened = job.thinking is not None and job.thinking.opened
    return AnswerForm(template.markers, opened, request.tools)


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A prompt that is completed as it is, without a template: a text, or its tokens."""

    prompt: str | tuple[int, ...]
    sampling: Sampling
    seed: int
    max_tokens: int
    stop: tuple[str, ...] = ()
    n: int = 1
    grammar: str = ""


def prepare_text(request: TextRequest, tokenise: Tokenise, n_tokens: int, n_ctx: int) -> Job:
    """Count the prompt and check its tokens against a vocabulary of `n_tokens`.

    Raises `ContextTooLong`, `EngineRefused`.
    """
    if isinstance(request.prompt, str):
        text, tokens = request.prompt, tokenise(request.prompt)
    else:
        # Tokens of unknown text are called by their numbers: no other prompt begins like that.
        text, tokens = f"\0{request.prompt}", list(request.prompt)
        if any(not 0 <= token < n_tokens for token in tokens):
            raise EngineRefused(400, f"prompt: the model has the tokens 0 to {n_tokens - 1}")
    if request.grammar:
        gbnf.check(request.grammar)
    return Job(
        prompt=_counted(tokens, n_ctx),
        text=text,
        sampling=request.sampling,
        seed=request.seed,
        max_tokens=request.max_tokens,
        stop=request.stop,
        n=request.n,
        grammar=request.grammar,
    )


def _counted(tokens: Sequence[int], n_ctx: int) -> tuple[int, ...]:
    """The tokens, if they leave room for at least one more."""
    if not tokens:
        raise EngineRefused(400, "the prompt is empty")
    if len(tokens) >= n_ctx:
        raise ContextTooLong(len(tokens), n_ctx)
    return tuple(tokens)


def _opened(text: str, request: ChatRequest, template: ChatTemplate) -> bool:
    """Whether the answer begins inside the thinking."""
    if text.rstrip().endswith(template.markers.start):
        return True
    last = request.messages[-1]
    return request.continue_final_message and (
        template.markers.open_in(last.content) or bool(last.reasoning and not last.content)
    )


def _switched_off(request: ChatRequest) -> bool:
    values = dict(request.template_values)
    return any(values.get(name) is False for name in _THINKING_SWITCHES)


def _grammar(request: ChatRequest, template: ChatTemplate) -> str:
    if request.structure is not None and request.tools:
        raise EngineRefused(400, "an answer cannot both have a structure and call tools")
    if request.must_call:
        tools = [tool for tool in request.tools if tool.name in request.must_call]
        if not tools or template.call_form is None:
            raise EngineRefused(400, "the tool that must be called is not among the tools")
        return calls_grammar(tools, template.call_form, several=len(request.must_call) > 1)
    match request.structure:
        case None:
            return ""
        case Grammar(gbnf=text):
            gbnf.check(text)
            return text
        case JsonSchema(schema=schema):
            return schema_grammar(schema)
        case _:
            assert_never(request.structure)
