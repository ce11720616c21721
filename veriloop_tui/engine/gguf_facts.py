"""What a GGUF's header says about its model, read without llama.cpp.

llama.cpp aborts the whole process on some headers, so they are refused here first.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from veriloop_tui.engine.gguf_read import Header, Malformed, Tensor, Value, read_header
from veriloop_tui.errors import ModelFileInvalid, ModelNotFound

# llama.cpp's LLAMA_MAX_LAYERS.
_MAX_BLOCKS: Final = 512
_ENDS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class GGUFFacts:
    """The header's facts. Counts are 0 and texts empty where the header is silent.

    `file_size` and `expected_size` are bytes, `parameters` is the sum over all tensors, `bpw` file
    bits per parameter, `tensor_types` pairs of type name and number of tensors, commonest first;
    `heads` and `kv_heads` have one entry, or one per block. `blocks_present` are the block numbers
    that have tensors.
    """

    path: str
    name: str
    architecture: str
    file_size: int
    expected_size: int
    header_size: int
    parameters: int
    tensor_types: tuple[tuple[str, int], ...]
    quant: str
    bpw: float
    context_length: int
    block_count: int
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    nextn_predict_layers: int
    blocks_present: frozenset[int]
    split_count: int
    vocabulary_known: bool
    duplicate_tokens: int
    chat_template: str

    @property
    def template_hash(self) -> str:
        """The sha256 of the chat template, empty if there is none."""
        return hashlib.sha256(self.chat_template.encode()).hexdigest() if self.chat_template else ""


def read_facts(path: Path) -> GGUFFacts:
    """The facts of the GGUF at `path`. Raises `ModelFileInvalid`, `ModelNotFound`."""
    try:
        with path.open("rb") as file:
            return parse_facts(file, str(path))
    except FileNotFoundError:
        raise ModelNotFound(str(path), "Check the path.") from None
    except OSError as problem:
        raise ModelFileInvalid(str(path), problem.strerror or str(problem)) from problem


def parse_facts(file: BinaryIO, path: str) -> GGUFFacts:
    """The facts of a GGUF in a seekable binary file. Raises `ModelFileInvalid`, `OSError`."""
    size = file.seek(0, 2)
    file.seek(0)
    try:
        return _facts(read_header(file, size), size, path)
    except Malformed as problem:
        raise ModelFileInvalid(path, str(problem)) from None


def check_loadable(facts: GGUFFacts) -> None:
    """Refuse what llama.cpp would abort on, or not run alone. Raises `ModelFileInvalid`."""
    problem = _why_not(facts)
    if problem:
        raise ModelFileInvalid(facts.path, problem)


def file_digest(facts: GGUFFacts) -> str:
    """The sha256 over the header, the file's size, and the first and last MiB of the weights.

    Raises `ModelFileInvalid` if the file cannot be read.
    """
    digest = hashlib.sha256(facts.file_size.to_bytes(8, "little"))
    try:
        with Path(facts.path).open("rb") as file:
            left = facts.header_size + _ENDS
            while left > 0 and (piece := file.read(min(left, _ENDS))):
                digest.update(piece)
                left -= len(piece)
            file.seek(max(0, facts.file_size - _ENDS))
            digest.update(file.read(_ENDS))
    except OSError as problem:
        raise ModelFileInvalid(facts.path, problem.strerror or str(problem)) from problem
    return digest.hexdigest()


def _why_not(facts: GGUFFacts) -> str:
    blocks, nextn = facts.block_count, facts.nextn_predict_layers
    if not facts.architecture:
        return "its header names no architecture"
    if facts.split_count > 1:
        return f"it is one of {facts.split_count} parts; join them with llama-gguf-split --merge"
    if facts.expected_size > facts.file_size:
        return (
            f"it is cut short: {facts.file_size} of {facts.expected_size} bytes are there; "
            "download it again"
        )
    if not 1 <= blocks <= _MAX_BLOCKS:
        return f"its header claims {blocks} blocks"
    if nextn >= blocks:
        return f"its header claims {nextn} draft layers in {blocks} blocks"
    if nextn and not any(block < blocks - nextn for block in facts.blocks_present):
        return "it holds a draft head only; give it beside a target model"
    if len(facts.heads) not in (1, blocks) or len(facts.kv_heads) not in (1, blocks):
        return "its head counts do not fit its number of blocks"
    pairs = zip(_spread(facts.heads, blocks), _spread(facts.kv_heads, blocks), strict=True)
    for heads, kv_heads in pairs:
        if heads < 0 or kv_heads < 0 or (kv_heads and heads % kv_heads):
            return f"its {heads} attention heads cannot be shared by {kv_heads} key-value heads"
    if not facts.vocabulary_known:
        return "it holds no vocabulary"
    if facts.duplicate_tokens:
        return f"{facts.duplicate_tokens} entries of its vocabulary repeat an earlier one"
    return ""


def _spread(values: tuple[int, ...], count: int) -> tuple[int, ...]:
    return values * count if len(values) == 1 else values


def _facts(header: Header, size: int, path: str) -> GGUFFacts:
    values = header.values
    architecture = _text(values, "general.architecture")
    heads = _integers(values, f"{architecture}.attention.head_count") or (0,)
    for key, value in values.items():
        if key.endswith("_epsilon") and isinstance(value, float) and not math.isfinite(value):
            raise Malformed(f"the metadata entry '{key[:80]}' is {value}")
    parameters = sum(tensor.elements for tensor in header.tensors)
    types = Counter(_type_name(tensor.type_id) for tensor in header.tensors)
    return GGUFFacts(
        path=path,
        name=_printable(_text(values, "general.name")) or _printable(Path(path).stem),
        architecture=_printable(architecture),
        file_size=size,
        expected_size=header.data_start + max(map(_tensor_end, header.tensors), default=0),
        header_size=header.data_start,
        parameters=parameters,
        tensor_types=tuple(types.most_common()),
        quant=_quant(values, header.tensors),
        bpw=size * 8 / parameters if parameters else 0.0,
        context_length=_integer(values, f"{architecture}.context_length"),
        block_count=_integer(values, f"{architecture}.block_count"),
        heads=heads,
        kv_heads=_integers(values, f"{architecture}.attention.head_count_kv") or heads,
        nextn_predict_layers=_integer(values, f"{architecture}.nextn_predict_layers"),
        blocks_present=frozenset(_blocks(header.tensors)),
        split_count=_integer(values, "split.count"),
        vocabulary_known="tokenizer.ggml.tokens" in values,
        duplicate_tokens=header.duplicate_tokens,
        chat_template=_text(values, "tokenizer.chat_template"),
    )


def _text(values: dict[str, Value], key: str) -> str:
    value = values.get(key, "")
    if not isinstance(value, str):
        raise Malformed(f"the metadata entry '{key}' is not a text")
    return value


def _integer(values: dict[str, Value], key: str) -> int:
    value = values.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Malformed(f"the metadata entry '{key[:80]}' is not a whole number")
    return value


def _integers(values: dict[str, Value], key: str) -> tuple[int, ...]:
    value = values.get(key, ())
    if not isinstance(value, tuple):
        return (_integer(values, key),)
    whole = tuple(item for item in value if isinstance(item, int) and not isinstance(item, bool))
    if len(whole) != len(value):
        raise Malformed(f"the metadata entry '{key[:80]}' does not hold whole numbers")
    return whole


def _printable(text: str) -> str:
    """A name fit for a terminal: the file's author may have put control characters into it."""
    return "".join(char for char in text[:200] if char.isprintable()).strip()


def _blocks(tensors: tuple[Tensor, ...]) -> set[int]:
    parts = (tensor.name.split(".", 2) for tensor in tensors)
    return {
        int(part[1])
        for part in parts
        if len(part) > 2 and part[0] == "blk" and part[1].isdecimal() and len(part[1]) < 6
    }


def _tensor_end(tensor: Tensor) -> int:
    """Where the tensor's bytes end in the data section; its offset if its type is not known."""
    from veriloop_tui.engine.gguf_types import block_size

    size = block_size(tensor.type_id)
    if size is None:
        return tensor.offset
    block, block_bytes = size
    if tensor.dims and tensor.dims[0] % block:
        raise Malformed(f"the rows of the tensor '{tensor.name[:80]}' do not fit its type")
    return tensor.offset + tensor.elements // block * block_bytes


def _type_name(type_id: int) -> str:
    from veriloop_tui.engine.gguf_types import type_name

    return type_name(type_id)


def _quant(values: dict[str, Value], tensors: tuple[Tensor, ...]) -> str:
    """The file type's usual name; where the header is silent, the type that holds most weights."""
    from veriloop_tui.engine.gguf_types import file_type_name

    stated = file_type_name(values.get("general.file_type"))
    if stated is not None:
        return stated
    weights: Counter[str] = Counter()
    for tensor in tensors:
        weights[_type_name(tensor.type_id)] += tensor.elements
    return weights.most_common(1)[0][0] if weights else ""
