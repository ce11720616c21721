"""Files of models that recite, and of heads that foretell them; see `tests.models.recital`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.models.blocks import Fill
from tests.models.form import Form, write_gguf
from tests.models.recital import (
    Recital,
    erring,
    foretelling,
    heavy_fill,
    light_fill,
    light_form,
    make_recital,
    output_norm,
    reciting,
)
from tests.models.vocabulary import CHAT_TEMPLATE

_HEAVY_WIDTH, _HEAVY_FEED_FORWARD = 1024, 2048


def write_scripted_gguf(
    path: Path,
    scripts: Mapping[str, str],
    default: str,
    n_ctx: int = 16384,
    *,
    piece_bytes: int = 4,
    template: str = CHAT_TEMPLATE,
) -> Path:
    """Write a scripted model of architecture `qwen35`, which recites given answers exactly.

    The answer is the script of the last trigger in the prompt, `default` where there is none, then
    EOS. `scripts` maps trigger texts (two characters or more) to answers. A piece is at most
    `piece_bytes` bytes long (1 to 32) and may end inside a UTF-8 character, like real tokens; the
    prompt takes one token per byte. `n_ctx` is the trained context in the header, in tokens.
    """
    form = light_form("qwen35", n_ctx)
    said = make_recital(scripts, default, form.width, piece_bytes)
    return write_gguf(path, form, said.tokens, reciting(form, said, light_fill(form)), template)


def write_scripted_draft_gguf(
    path: Path,
    scripts: Mapping[str, str],
    default: str,
    n_ctx: int = 16384,
    *,
    piece_bytes: int = 4,
    right_share: float = 1.0,
    seed: int = 0,
) -> Path:
    """Write a draft head (MTP, in a file of its own) for the scripted model of the same arguments.

    It foretells the successors of a `right_share` (0 to 1) of the script tokens, chosen by `seed`,
    and errs on the rest. It sees no trigger, so of a triggered script it errs on the first token.
    Block 0 and 1 are absent, as in published heads: load it with `load_mtp` in an MTP context only.
    """
    form = replace(light_form("qwen35", n_ctx), draft_layers=1)
    said = make_recital(scripts, default, form.width, piece_bytes)
    return _write_draft(path, form, said, light_fill(form), right_share, seed)


def write_scripted_gguf_with_head(
    path: Path,
    scripts: Mapping[str, str],
    default: str,
    n_ctx: int = 16384,
    *,
    piece_bytes: int = 4,
    right_share: float = 1.0,
    seed: int = 0,
) -> Path:
    """Write the model of `write_scripted_gguf` with the head of `write_scripted_draft_gguf` in it.

    The head has an embedding of its own, since only that errs.
    """
    form = replace(light_form("qwen35", n_ctx), draft_layers=1)
    said = make_recital(scripts, default, form.width, piece_bytes)
    fill = light_fill(form)
    tensors = reciting(form, said, fill) | foretelling(form, fill)
    tensors[f"blk.{form.blocks}.nextn.embed_tokens.weight"] = erring(said, right_share, seed)
    return write_gguf(path, form, said.tokens, tensors)


def write_chained_scripted_gguf(
    path: Path,
    answer: str,
    n_ctx: int = 16384,
    *,
    layers: int = 3,
    piece_bytes: int = 4,
    right_share: float = 1.0,
    seed: int = 0,
) -> Path:
    """Write a model of architecture `hy_v3` with chained draft layers, one for each drafted token.

    It has attention only, so it knows no triggers: it always recites `answer`. All layers err on
    the same tokens, but for the first layer, which is always right.
    """
    form = replace(light_form("hy_v3", n_ctx), draft_layers=layers)
    said = make_recital({}, answer, form.width, piece_bytes)
    fill = light_fill(form)
    tensors = reciting(form, said, fill) | foretelling(form, fill)
    for layer in range(1, layers):
        name = f"blk.{form.blocks + layer}.nextn.embed_tokens.weight"
        tensors[name] = erring(said, right_share, seed)
    return write_gguf(path, form, said.tokens, tensors)


def write_heavy_scripted_gguf(
    path: Path,
    scripts: Mapping[str, str],
    default: str,
    n_ctx: int = 16384,
    *,
    piece_bytes: int = 4,
    megabytes: int = 300,
) -> Path:
    """Write the recital with `megabytes` of weights that are read for nothing, for benchmarks.

    The feed-forward blocks' last matrices are zero, so their products are, but all their weights
    are read for each batch: what a token costs is bound by memory, as with a large model. It takes
    a few seconds; a test has no use for it.
    """
    form = _heavy(n_ctx, megabytes)
    said = make_recital(scripts, default, form.width, piece_bytes)
    return write_gguf(path, form, said.tokens, reciting(form, said, heavy_fill(form)))


def write_heavy_scripted_draft_gguf(
    path: Path,
    scripts: Mapping[str, str],
    default: str,
    n_ctx: int = 16384,
    *,
    piece_bytes: int = 4,
    megabytes: int = 300,
    right_share: float = 1.0,
    seed: int = 0,
) -> Path:
    """Write the draft head of the heavy model of the same arguments; it is as heavy as a block."""
    form = replace(_heavy(n_ctx, megabytes), draft_layers=1)
    said = make_recital(scripts, default, form.width, piece_bytes)
    return _write_draft(path, form, said, heavy_fill(form), right_share, seed)


def _heavy(n_ctx: int, megabytes: int) -> Form:
    of_a_block = 3 * _HEAVY_WIDTH * _HEAVY_FEED_FORWARD * 4
    blocks = max(2, round(megabytes * 1e6 / of_a_block))
    light = light_form("qwen35", n_ctx)
    return replace(light, width=_HEAVY_WIDTH, feed_forward=_HEAVY_FEED_FORWARD, blocks=blocks)


def _write_draft(
    path: Path, form: Form, said: Recital, fill: Fill, right_share: float, seed: int
) -> Path:
    tensors = {
        "token_embd.weight": erring(said, right_share, seed),
        "output_norm.weight": output_norm(form)((form.width,)),
        "output.weight": said.output,
        **foretelling(form, fill),
    }
    return write_gguf(path, form, said.tokens, tensors)
