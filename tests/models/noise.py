"""Models of random weights: every logit depends on every earlier token.

What they say is noise and need not be UTF-8, so compare token ids and logits. They show that reuse,
roll-back and speculation change nothing: a wrong state anywhere shows in the next token.

A draft head can be right now and then, since it has the target's embedding and output: what the
blocks add is random, but the token itself weighs as well. `depth` says how much the blocks add.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from gguf import TokenType

from tests.models.blocks import Fill, draft_layers, trunk
from tests.models.form import Architecture, Array, Form, write_gguf
from tests.models.vocabulary import Token, prompt_tokens

_LOGIT_DEVIATION = 3.0


def write_random_gguf(
    path: Path,
    architecture: Architecture,
    seed: int,
    *,
    n_ctx: int = 4096,
    width: int = 64,
    blocks: int = 4,
    depth: float = 1.0,
    layers: int = 0,
    more_tokens: int = 0,
) -> Path:
    """Write a model of random F32 weights, the same bytes for the same arguments.

    In the hybrid architectures every fourth block is attention and the rest are gated delta nets.
    Tokeniser and template are those of a scripted model without scripts. `width` is a multiple of
    32. With `layers` the file holds the draft layers of `write_random_draft_gguf` too.
    `more_tokens` are added to the vocabulary, and no text becomes one.
    """
    form = replace(_form(architecture, n_ctx, width, blocks), draft_layers=layers)
    random = np.random.default_rng(seed)
    fill = _fill(random, depth)
    tokens = prompt_tokens() + _more(more_tokens)
    tensors = {**_ends(random, fill, len(tokens), width), **trunk(form, fill)}
    if layers:
        tensors |= _draft(form, seed, depth)
    return write_gguf(path, form, tokens, tensors)


def write_random_draft_gguf(
    path: Path,
    architecture: Architecture,
    seed: int,
    *,
    n_ctx: int = 4096,
    width: int = 64,
    blocks: int = 4,
    depth: float = 1.0,
    layers: int = 1,
    more_tokens: int = 0,
) -> Path:
    """Write the draft head of the random model of the same arguments, in a file of its own.

    The trunk's blocks are absent, as in published heads. `more_tokens` are entries of the
    vocabulary that the target does not have, so with any but 0 it is nobody's head.
    """
    form = replace(_form(architecture, n_ctx, width, blocks), draft_layers=layers)
    random = np.random.default_rng(seed)
    tokens = prompt_tokens() + _more(more_tokens)
    ends = _ends(random, _fill(random, depth), len(tokens), width)
    return write_gguf(path, form, tokens, {**ends, **_draft(form, seed, depth)})


def _more(count: int) -> list[Token]:
    return [Token(f"more-{i}", TokenType.NORMAL) for i in range(count)]


def _draft(form: Form, seed: int, depth: float) -> dict[str, Array]:
    random = np.random.default_rng((seed, form.draft_layers))

    def join(_layer: int) -> Array:
        noise = random.standard_normal((form.width, 2 * form.width), np.float32)
        small = np.float32(0.2 * depth / form.width**0.5)
        return np.eye(form.width, 2 * form.width, dtype=np.float32) + small * noise

    return draft_layers(form, _fill(random, 0.5 * depth), join, _output_norm)


def _ends(random: np.random.Generator, fill: Fill, n_tokens: int, width: int) -> dict[str, Array]:
    return {
        "token_embd.weight": random.standard_normal((n_tokens, width), np.float32),
        "output_norm.weight": _output_norm((width,)),
        "output.weight": fill.matrix((n_tokens, width)),
    }


def _fill(random: np.random.Generator, depth: float) -> Fill:
    def matrix(shape: tuple[int, ...]) -> Array:
        return random.standard_normal(shape, np.float32) / np.float32(shape[-1] ** 0.5)

    def back(shape: tuple[int, ...]) -> Array:
        return matrix(shape) * np.float32(depth)

    def vector(shape: tuple[int, ...]) -> Array:
        # The delta net's decay must be negative; small, so that a token is remembered beyond the
        # next few.
        return -random.uniform(0.01, 0.3, shape).astype(np.float32)

    def norm(shape: tuple[int, ...]) -> Array:
        return np.ones(shape, np.float32)

    return Fill(matrix, back, vector, norm)


def _output_norm(shape: tuple[int, ...]) -> Array:
    return np.full(shape, _LOGIT_DEVIATION, np.float32)


def _form(architecture: Architecture, n_ctx: int, width: int, blocks: int) -> Form:
    if width % 32 or blocks < 1:
        raise ValueError("width must be a multiple of 32, and there must be a block")
    return Form(
        architecture=architecture,
        context=n_ctx,
        width=width,
        blocks=blocks,
        heads=width // 16,
        head=16,
        feed_forward=2 * width,
        state=16,
        ranks=2,
        interval=4,
    )
