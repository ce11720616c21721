"""What GGUF's numbers mean: tensor types and file types, from the `gguf` package.

Loaded only where a header is read: the package brings numpy, which the command line need not wait
for.
"""

from __future__ import annotations

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, LlamaFileType


def type_name(type_id: int) -> str:
    """The name of a tensor type, such as `Q6_K`."""
    known = _known(type_id)
    return known.name if known is not None else f"type {type_id}"


def block_size(type_id: int) -> tuple[int, int] | None:
    """Elements per block and bytes per block, `None` for a type that is not known."""
    known = _known(type_id)
    if known is None:
        return None
    elements, size = GGML_QUANT_SIZES[known]
    return elements, size


def file_type_name(file_type: object) -> str | None:
    """The usual name of a file type, such as `Q4_K_M`, `None` where it is unknown or a guess."""
    for known in LlamaFileType:
        if known == file_type and known is not LlamaFileType.GUESSED:
            return known.name.removeprefix("MOSTLY_").removeprefix("ALL_")
    return None


def _known(type_id: int) -> GGMLQuantizationType | None:
    return next((known for known in GGMLQuantizationType if known == type_id), None)
