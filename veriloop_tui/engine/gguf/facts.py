"""What a GGUF's header says about its model, read without llama.cpp.

llama.cpp aborts the whole process on some headers, so they are refused here first.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from veriloop_tui.engine.gguf.kinds import file_type_name, type_name
from veriloop_tui.engine.gguf.layers import Layers, Widths, block_parts, read_layers, read_widths
from veriloop_tui.engine.gguf.metadata import MAX_BLOCKS, Metadata, metadata
from veriloop_tui.engine.gguf.read import Header, Malformed, Tensor, read_header
from veriloop_tui.engine.gguf.shards import Part, joined, part, shard_names, stem
from veriloop_tui.engine.gguf.sizes import Sizes, read_sizes
from veriloop_tui.errors import DraftRefused, ModelFileInvalid, ModelNotFound

_ENDS: Final = 1 << 20
_MAX_EXPERTS: Final = 1_024  # llama.cpp's LLAMA_MAX_EXPERTS


@dataclass(frozen=True, slots=True)
class GGUFFacts:
    """The header's facts. Counts are 0 and texts empty where the header is silent.

    `path` is the first part's, which is the one that llama.cpp loads; of a remote file its
    address. `heads` and `kv_heads` have one entry, or one per block. `blocks_present` are the
    block numbers that have tensors; `quant` is the usual name of the file's type.
    """

    path: str
    name: str
    architecture: str
    parts: tuple[Part, ...]
    quant: str
    sizes: Sizes
    layers: Layers
    widths: Widths
    context_length: int
    block_count: int
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    nextn_predict_layers: int
    blocks_present: frozenset[int]
    split_count: int
    vocabulary_size: int
    duplicate_tokens: int
    chat_template: str

    @property
    def file_size(self) -> int:
        """Bytes of all parts."""
        return sum(one.size for one in self.parts)

    @property
    def header_size(self) -> int:
        """Bytes of the first part's header."""
        return self.parts[0].header_size

    @property
    def parameters(self) -> int:
        """The number of weights in all tensors."""
        return self.sizes.elements

    @property
    def bpw(self) -> float:
        """Bits per weight over all tensors, as llama.cpp counts."""
        return self.sizes.bpw

    @property
    def draft_head_only(self) -> bool:
        """Whether the file holds nothing but the draft layers of a model (MTP)."""
        trunk = self.block_count - self.nextn_predict_layers
        return bool(self.nextn_predict_layers) and not any(
            block < trunk for block in self.blocks_present
        )

    @property
    def template_hash(self) -> str:
        """The sha256 of the chat template, empty if there is none."""
        return hashlib.sha256(self.chat_template.encode()).hexdigest() if self.chat_template else ""


def read_facts(path: Path) -> GGUFFacts:
    """The facts of the model in the GGUF at `path`, or of which it is a part.

    Raises `ModelFileInvalid`, `ModelNotFound`.
    """
    if not path.exists():
        raise ModelNotFound(str(path), "Check the path.")
    try:
        paths = [path.with_name(name) for name in shard_names(path.name)]
    except Malformed as problem:
        raise ModelFileInvalid(str(path), str(problem)) from None
    return facts_of([_read(one, number, len(paths)) for number, one in enumerate(paths, 1)])


def parse_facts(file: BinaryIO, path: str) -> GGUFFacts:
    """The facts of a GGUF in one seekable binary file. Raises `ModelFileInvalid`, `OSError`."""
    size = file.seek(0, 2)
    file.seek(0)
    try:
        header = read_header(file, size)
    except Malformed as problem:
        raise ModelFileInvalid(path, str(problem)) from None
    return facts_of([(path, size, header)])


def facts_of(files: Sequence[tuple[str, int, Header]]) -> GGUFFacts:
    """The facts of a model from path, size and header of each of its files, in their order.

    Raises `ModelFileInvalid`.
    """
    path = files[0][0]
    try:
        parts = tuple(part(*one) for one in files)
        headers = [header for _, _, header in files]
        return _facts(path, parts, headers[0], joined(headers))
    except Malformed as problem:
        raise ModelFileInvalid(path, str(problem)) from None


def check_loadable(facts: GGUFFacts) -> None:
    """Refuse what llama.cpp would abort on, or not run alone. Raises `ModelFileInvalid`."""
    problem = _why_not(facts)
    if not problem and facts.draft_head_only:
        problem = "it holds a draft head only; give it beside a target model"
    if problem:
        raise ModelFileInvalid(facts.path, problem)


def check_draft(target: GGUFFacts, draft: GGUFFacts) -> None:
    """Refuse a draft head that is not the target's, or that llama.cpp would abort on.

    Raises `DraftRefused`.
    """
    if problem := _why_not(draft):
        raise DraftRefused(f"{draft.path}: {problem}")
    if not draft.nextn_predict_layers:
        raise DraftRefused("it holds no draft layers")
    for what, mine, its in (
        ("architecture", draft.architecture, target.architecture),
        ("embedding width", draft.widths.model, target.widths.model),
        ("vocabulary", draft.vocabulary_size, target.vocabulary_size),
    ):
        if mine != its:
            raise DraftRefused(f"its {what} is {mine}, the model's is {its}")


def file_digest(facts: GGUFFacts) -> str:
    """The sha256 over each part's header, its size, and the first and last MiB of its weights.

    Raises `ModelFileInvalid` if a file cannot be read.
    """
    digest = hashlib.sha256()
    for one in facts.parts:
        digest.update(one.size.to_bytes(8, "little"))
        try:
            with Path(one.path).open("rb") as file:
                left = one.header_size + _ENDS
                while left > 0 and (piece := file.read(min(left, _ENDS))):
                    digest.update(piece)
                    left -= len(piece)
                file.seek(max(0, one.size - _ENDS))
                digest.update(file.read(_ENDS))
        except OSError as problem:
            raise ModelFileInvalid(one.path, problem.strerror or str(problem)) from problem
    return digest.hexdigest()


def printable(text: str) -> str:
    """A name fit for a terminal: the file's author may have put control characters into it."""
    return "".join(char for char in text[:200] if char.isprintable()).strip()


def _read(path: Path, number: int, of: int) -> tuple[str, int, Header]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            return str(path), size, read_header(file, size)
    except FileNotFoundError:
        problem = f"part {number} of {of} is missing; download {path.name}"
        raise ModelFileInvalid(str(path), problem) from None
    except OSError as problem:
        raise ModelFileInvalid(str(path), problem.strerror or str(problem)) from problem
    except Malformed as problem:
        raise ModelFileInvalid(str(path), str(problem)) from None


def _why_not(facts: GGUFFacts) -> str:
    blocks, nextn = facts.block_count, facts.nextn_predict_layers
    if not facts.architecture:
        return "its header names no architecture"
    if facts.split_count > 1 and facts.split_count != len(facts.parts):
        return f"it is one of {facts.split_count} parts, and its name does not say which"
    for number, one in enumerate(facts.parts, 1):
        if one.expected_size > one.size:
            which = f"part {number}" if len(facts.parts) > 1 else "it"
            return (
                f"{which} is cut short: {one.size} of {one.expected_size} bytes are there; "
                "download it again"
            )
    if not 1 <= blocks <= MAX_BLOCKS:
        return f"its header claims {blocks} blocks"
    if not 0 <= nextn < blocks:
        return f"its header claims {nextn} draft layers in {blocks} blocks"
    if len(facts.heads) not in (1, blocks) or len(facts.kv_heads) not in (1, blocks):
        return "its head counts do not fit its number of blocks"
    pairs = zip(_spread(facts.heads, blocks), _spread(facts.kv_heads, blocks), strict=True)
    for heads, kv_heads in pairs:
        if heads < 0 or kv_heads < 0 or (kv_heads and heads % kv_heads):
            return f"its {heads} attention heads cannot be shared by {kv_heads} key-value heads"
    experts, used = facts.sizes.experts, facts.sizes.experts_used
    if not 0 <= experts <= _MAX_EXPERTS or not (experts == 0 or 0 < used <= experts):
        return f"its header claims the use of {used} of {experts} experts"
    if not facts.vocabulary_size:
        return "it holds no vocabulary"
    if facts.duplicate_tokens:
        return f"{facts.duplicate_tokens} entries of its vocabulary repeat an earlier one"
    return ""


def _spread(values: tuple[int, ...], count: int) -> tuple[int, ...]:
    return values * count if len(values) == 1 else values


def _facts(
    path: str, parts: tuple[Part, ...], header: Header, tensors: tuple[Tensor, ...]
) -> GGUFFacts:
    meta = metadata(header)
    heads = meta.wholes("attention.head_count") or (0,)
    address = path.partition("?")[0] if "://" in path else path
    file_name = address.replace("\\", "/").rpartition("/")[2]
    return GGUFFacts(
        path=path,
        name=printable(meta.text("general.name")) or printable(stem(file_name)),
        architecture=printable(meta.architecture),
        parts=parts,
        quant=_quant(meta, tensors),
        sizes=read_sizes(meta, tensors),
        layers=read_layers(meta, tensors),
        widths=read_widths(meta),
        context_length=meta.whole("context_length"),
        block_count=meta.whole("block_count"),
        heads=heads,
        kv_heads=meta.wholes("attention.head_count_kv") or heads,
        nextn_predict_layers=meta.whole("nextn_predict_layers"),
        blocks_present=frozenset(block_parts(tensors)),
        split_count=meta.plain_whole("split.count"),
        vocabulary_size=meta.lengths.get("tokenizer.ggml.tokens", 0),
        duplicate_tokens=header.duplicate_tokens,
        chat_template=meta.text("tokenizer.chat_template"),
    )


def _quant(meta: Metadata, tensors: tuple[Tensor, ...]) -> str:
    """The file type's usual name; where the header is silent, the type that holds most weights."""
    stated = file_type_name(meta.values.get("general.file_type"))
    if stated is not None:
        return stated
    weights: Counter[str] = Counter()
    for tensor in tensors:
        weights[type_name(tensor.type_id)] += tensor.elements
    return weights.most_common(1)[0][0] if weights else ""
