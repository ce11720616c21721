"""Keeping an evaluated context over the end of the engine's process."""

from __future__ import annotations

from pathlib import Path

from veriloop_tui.engine.decoding.decode import Decoder
from veriloop_tui.engine.decoding.state_file import SavedContext, read_context, write_context
from veriloop_tui.engine.decoding.transcript import NOTHING, Transcript

# Less is evaluated as fast as it is read.
_WORTH_TOKENS = 256


def save(decoder: Decoder, transcript: Transcript, binding: str, path: Path) -> bool:
    """Write sequence 0 to `path`; False where there is little to keep or no room for it.

    Raises `OSError`.
    """
    memory, head = decoder.memory, decoder.head
    if len(memory) < _WORTH_TOKENS:
        return False
    head_state, head_length, carried = head.state() if head is not None else (b"", 0, b"")
    return write_context(
        path,
        SavedContext(
            binding=binding,
            tokens=memory.tokens,
            state=memory.state(),
            checkpoints=memory.checkpoints.kept,
            head_state=head_state,
            head_length=head_length,
            carried=carried,
            transcript=transcript,
        ),
    )


def restore(decoder: Decoder, binding: str, path: Path) -> Transcript:
    """Fill the empty memory from `path`; the transcript of what is in it then.

    Where nothing was saved under the same binding, or llama.cpp refuses it, it stays empty.
    """
    saved = read_context(path, binding)
    if saved is None:
        return NOTHING
    memory, head = decoder.memory, decoder.head
    if not memory.adopt(saved.tokens, saved.state, saved.checkpoints):
        return NOTHING
    if head is not None and not head.adopt(saved.head_state, saved.head_length, saved.carried):
        head.cut(len(memory))
    return saved.transcript
