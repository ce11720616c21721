import os
from pathlib import Path

import pytest

from veriloop_tui.engine.decoding.checkpoints import Checkpoint
from veriloop_tui.engine.decoding.state_file import SavedContext, read_context, write_context
from veriloop_tui.engine.decoding.transcript import Transcript

SAVED = SavedContext(
    binding="this model",
    tokens=(1, 2, 3),
    state=b"state" * 100,
    checkpoints=(Checkpoint(1, b"one", b"row"), Checkpoint(3, b"three")),
    head_state=b"head",
    head_length=3,
    carried=b"carried",
    transcript=Transcript("abc", (1, 2, 3), ((1, 1), (3, 3))),
)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    assert write_context(tmp_path / "sub" / "context.bin", SAVED)

    assert read_context(tmp_path / "sub" / "context.bin", "this model") == SAVED


def test_a_context_of_another_model_is_not_taken(tmp_path: Path) -> None:
    write_context(tmp_path / "context.bin", SAVED)

    assert read_context(tmp_path / "context.bin", "another model") is None


def test_no_file_is_no_context(tmp_path: Path) -> None:
    assert read_context(tmp_path / "context.bin", "this model") is None


@pytest.mark.parametrize("at", [0, 5, 100, 400, -1])
def test_a_changed_byte_anywhere_is_noticed(tmp_path: Path, at: int) -> None:
    path = tmp_path / "context.bin"
    write_context(path, SAVED)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)

    assert read_context(path, "this model") is None


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 300])
def test_a_file_cut_short_is_noticed(tmp_path: Path, size: int) -> None:
    path = tmp_path / "context.bin"
    write_context(path, SAVED)
    os.truncate(path, size)

    assert read_context(path, "this model") is None


def test_only_the_user_may_read_it_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_context(tmp_path / "context.bin", SAVED)

    assert [path.name for path in tmp_path.iterdir()] == ["context.bin"]
    assert (tmp_path / "context.bin").stat().st_mode & 0o777 == 0o600
