import ctypes

import pytest
from gguf.constants import GGML_QUANT_SIZES, LlamaFileType

from veriloop_tui.engine.decoding.native import libggml
from veriloop_tui.engine.gguf.kinds import block_size, file_type_name, row_size, type_name

TYPES = 64


def test_types_have_llama_cpp_s_names_and_sizes() -> None:
    libggml.ggml_type_name.restype = ctypes.c_char_p
    libggml.ggml_blck_size.restype = ctypes.c_int64
    libggml.ggml_type_size.restype = ctypes.c_size_t
    known = [one for one in range(TYPES) if block_size(one) is not None]

    for one in known:
        assert type_name(one).upper() == libggml.ggml_type_name(one).decode().upper()
        assert block_size(one) == (libggml.ggml_blck_size(one), libggml.ggml_type_size(one))


def test_every_type_and_file_type_of_the_gguf_package_is_known() -> None:
    for kind in GGML_QUANT_SIZES:
        assert type_name(kind) == kind.name
    for file_type in LlamaFileType:
        if file_type is not LlamaFileType.GUESSED:
            name = file_type.name.removeprefix("MOSTLY_").removeprefix("ALL_")
            assert file_type_name(file_type.value) == name


def test_what_is_not_known_says_so() -> None:
    assert type_name(999) == "type 999"
    assert block_size(999) is None
    assert file_type_name(1024) is None
    assert file_type_name("Q4_K_M") is None


def test_a_row_s_bytes_follow_from_blocks() -> None:
    assert row_size("q8_0", 64) == 68
    assert row_size("F16", 3) == 6
    with pytest.raises(KeyError):
        row_size("q9_9", 32)
