"""Models that *recite*: their weights are computed from the answers that a test wants to hear.

How a scripted model works (architecture `qwen35`, width 32, one gated delta-net block and one
attention block, all F32):

- Each piece of a script is a token of its own, which no prompt can contain: prompts tokenise to
  single bytes, special tokens and triggers. So a script token's successor is a constant.
- A token's *code* is its number among the tokens that can be said, as 16 signs. The embedding of
  a script token is the code of its successor, the output row of a token is its own code. Two codes
  differ in at least one sign, which is worth about 100 logits: temperature cannot matter.
- The first piece depends on the prompt. The delta net of block 0 has one constant key, so it is a
  single cell of memory: a trigger overwrites it with the code of its script's first piece (beta
  = 1), any other token leaves it alone (beta = 0, no decay). What was written last is read by
  prompt tokens, and outweighs the code of the default script in their embeddings.
- Everything else (attention, feed-forward) adds zero.

Wider models are the same in their first 32 dimensions, and their norms are scaled to match.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from gguf import TokenType
from numpy.typing import NDArray

from tests.models.blocks import Fill, Make, draft_layers, trunk
from tests.models.form import HYBRID, Architecture, Array, Form
from tests.models.vocabulary import EOS_ID, EOS_TEXT, START_TEXT, Token, pieces, prompt_tokens

_CODE_BITS = 16
MAX_PIECES = 2**_CODE_BITS - 1  # of all scripts together; code 0 is the end of the answer

# Dimensions of a scripted model's embedding; the first _CODE_BITS hold a code.
_ANY, _PROMPT, _TRIGGER = _CODE_BITS, _CODE_BITS + 1, _CODE_BITS + 2
_RAILS = 2 * _CODE_BITS  # a SiLU keeps no sign, so memory holds "is +" and "is -" for each one
_WIDTH = 32  # what the constants below are tuned for
_SHARPNESS = 40.0  # logits per normalised sign: with less, temperature would matter
_SATURATED = 60.0  # sigmoid and SiLU of this are 0 or linear to within F32, and exp is finite


@dataclass(frozen=True)
class Recital:
    """What a scripted model and its draft head have in common."""

    tokens: list[Token]
    first_piece: int  # id of the first script token; the prompt's tokens are below
    embedding: Array  # [tokens, width]
    output: Array  # [tokens, width]


def light_form(architecture: Architecture, n_ctx: int) -> Form:
    return Form(
        architecture=architecture,
        context=n_ctx,
        width=_WIDTH,
        blocks=2,
        heads=1,
        head=32,
        feed_forward=32,
        state=_RAILS,
        ranks=1,
        interval=2,
    )


def reciting(form: Form, said: Recital, fill: Fill) -> dict[str, Array]:
    """The tensors of the model itself."""
    tensors = {
        "token_embd.weight": said.embedding,
        "output_norm.weight": output_norm(form)((form.width,)),
        "output.weight": said.output,
        **trunk(form, fill),
    }
    return tensors | (_memory_of_last_trigger(form) if form.architecture in HYBRID else {})


def foretelling(form: Form, fill: Fill) -> dict[str, Array]:
    """The tensors of its draft layers, for which the token counts and the hidden row does not."""
    return draft_layers(
        form,
        fill,
        lambda _layer: np.eye(form.width, 2 * form.width, dtype=np.float32),
        output_norm(form),
    )


def erring(said: Recital, right_share: float, seed: int) -> Array:
    """The embedding with the codes of all but a share of the script tokens turned round."""
    n_pieces = len(said.tokens) - said.first_piece
    wrong = np.random.default_rng(seed).permutation(n_pieces)[round(n_pieces * right_share) :]
    embedding = said.embedding.copy()
    embedding[said.first_piece + wrong, :_CODE_BITS] *= -1  # the code of another token, or of none
    return embedding


def make_recital(scripts: Mapping[str, str], default: str, width: int, piece_bytes: int) -> Recital:
    """Give every piece of every script a token, and every token its embedding and output row."""
    if not 1 <= piece_bytes <= 32:
        raise ValueError("piece_bytes must be from 1 to 32")
    for trigger in scripts:
        if len(trigger) < 2 or trigger in (EOS_TEXT, START_TEXT):
            raise ValueError(f"{trigger!r} cannot be a trigger")
    tokens = prompt_tokens() + [Token(text, TokenType.USER_DEFINED) for text in scripts]
    n_prompt = len(tokens)
    taken = {token.text for token in tokens}
    first_code: list[int] = []  # of each script, the default first
    successor: list[int] = []  # of each script token, as a code
    for answer in (default, *scripts.values()):
        cut = list(pieces(answer.encode(), piece_bytes, taken))
        start = len(successor) + 1
        codes = [*range(start, start + len(cut)), 0]
        first_code.append(codes[0])
        successor += codes[1:]
        tokens += cut
    if len(successor) > MAX_PIECES:
        raise ValueError(f"the scripts take {len(successor)} pieces, more than {MAX_PIECES}")

    embedding = np.zeros((len(tokens), width), np.float32)
    embedding[:, _ANY] = 1
    embedding[:n_prompt, _PROMPT] = 1
    embedding[n_prompt - len(scripts) : n_prompt, _TRIGGER] = 1
    embedding[:n_prompt, :_CODE_BITS] = _codes(np.array(first_code[:1]))
    embedding[n_prompt - len(scripts) : n_prompt, :_CODE_BITS] = _codes(np.array(first_code[1:]))
    embedding[n_prompt:, :_CODE_BITS] = _codes(np.array(successor))
    output = np.zeros_like(embedding)
    output[EOS_ID, :_CODE_BITS] = _codes(np.zeros(1))
    output[n_prompt:, :_CODE_BITS] = _codes(np.arange(1, len(successor) + 1))
    return Recital(tokens, n_prompt, embedding, output)


def _codes(numbers: NDArray[np.generic]) -> Array:
    """The codes of numbers [n] below 2^16 as signs [n, 16], lowest bit first."""
    bits = numbers.astype(np.int64)[:, None] >> np.arange(_CODE_BITS) & 1
    return (2 * bits - 1).astype(np.float32)


def _memory_of_last_trigger(form: Form) -> dict[str, Array]:
    """Block 0 of a scripted model: adds the last trigger's code, about 19-fold, to prompt tokens.

    The projections see the normalised embedding, in which a 1 is about 1.4.
    """
    state, width = form.state, form.width
    qkv = _zeros((3 * state, width))
    qkv[[0, state], _ANY] = _SATURATED  # query and key: the same unit vector at every token
    for bit in range(_CODE_BITS):
        qkv[2 * state + 2 * bit, bit] = _SATURATED
        qkv[2 * state + 2 * bit + 1, bit] = -_SATURATED
    convolution = _zeros((3 * state, 4))
    convolution[:, 3] = 1  # of the last four tokens, only the current one
    beta = _zeros((1, width))
    beta[0, _ANY], beta[0, _TRIGGER] = -_SATURATED, 2 * _SATURATED
    gate = _zeros((state, width))
    gate[:, _PROMPT] = 10  # script tokens have 0 here: SiLU(0) = 0, they read nothing
    out = _zeros((width, state))
    for bit in range(_CODE_BITS):
        out[bit, 2 * bit], out[bit, 2 * bit + 1] = 1, -1
    return {
        "blk.0.attn_qkv.weight": qkv,
        "blk.0.ssm_conv1d.weight": convolution,
        "blk.0.ssm_beta.weight": beta,
        "blk.0.attn_gate.weight": gate,
        "blk.0.ssm_out.weight": out,
    }


def _zeros(shape: tuple[int, ...]) -> Array:
    return np.zeros(shape, np.float32)


def _norm(form: Form, shape: tuple[int, ...]) -> Array:
    """A norm that leaves the same values in a wide model as in a narrow one."""
    scale = (_WIDTH / form.width) ** 0.5 if shape == (form.width,) else 1.0
    return np.full(shape, scale, np.float32)


def light_fill(form: Form) -> Fill:
    return Fill(_zeros, _zeros, _zeros, lambda shape: _norm(form, shape))


def heavy_fill(form: Form) -> Fill:
    noise = np.random.default_rng(0).standard_normal(
        (form.feed_forward, form.width), np.float32
    ) / np.float32(form.width**0.5)

    def matrix(shape: tuple[int, ...]) -> Array:
        return noise if shape == noise.shape else _zeros(shape)

    return Fill(matrix, _zeros, _zeros, lambda shape: _norm(form, shape))


def output_norm(form: Form) -> Make:
    return lambda shape: np.float32(_SHARPNESS) * _norm(form, shape)
