"""llama.cpp set up: its log, a model's weights and its vocabulary.

Only the engine's child process imports this module.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from veriloop_tui.engine.answer.reasoning import KNOWN_MARKERS
from veriloop_tui.engine.decoding.native import api, libggml
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import EngineRefused, ModelFileInvalid

_LOG_WARN: Final = 3
_LOG_ERROR: Final = 4
SPLIT_MODES: Final = {
    "none": api.LLAMA_SPLIT_MODE_NONE,
    "layer": api.LLAMA_SPLIT_MODE_LAYER,
    "row": api.LLAMA_SPLIT_MODE_ROW,
}
# Readers of an answer need these, so they are written out even where a vocabulary hides them.
_MARKERS: Final = (
    "<tool_call>",
    "</tool_call>",
    *(text for markers in KNOWN_MARKERS for text in (markers.start, markers.end)),
)
# More than most tokens have; longer ones are asked for twice.
_PIECE_BYTES: Final = 64

Cancelled = Callable[[], bool]


class _Log:
    """llama.cpp's warnings and errors go to stderr; the rest is dropped.

    An abort that was asked for is reported as an error by llama.cpp, so it mutes the log.
    """

    def __init__(self) -> None:
        self.muted = False

    def __call__(self, level: int, text: bytes, _data: object) -> None:
        if level in (_LOG_WARN, _LOG_ERROR) and not self.muted:
            sys.stderr.write(text.decode("utf-8", "replace"))
            sys.stderr.flush()


LOG: Final = _Log()
# Kept for the life of the process: llama.cpp holds the raw pointer.
_LOG_CALLBACK: Final = api.llama_log_callback(LOG)


def silence_logs() -> None:
    """Take llama.cpp's log over; call it before anything is loaded."""
    api.llama_log_set(_LOG_CALLBACK, ctypes.c_void_p(0))


class Vocabulary:
    """Tokens and texts. Safe to use from any thread."""

    def __init__(self, model: Any) -> None:
        self.handle: Any = api.llama_model_get_vocab(model)
        self.size: int = api.llama_vocab_n_tokens(self.handle)
        self._bos: int = api.llama_vocab_bos(self.handle)
        self.bos = self._text(self._bos)
        self.eos = self._text(api.llama_vocab_eos(self.handle))
        self._add_bos = bool(api.llama_vocab_get_add_bos(self.handle)) and self._bos >= 0
        ids = [self.parse(text) for text in _MARKERS]
        self._markers = {
            one[0]: text.encode() for one, text in zip(ids, _MARKERS, strict=True) if len(one) == 1
        }

    def tokenise(self, text: str) -> list[int]:
        """The tokens of a rendered prompt, special tokens parsed, the BOS where the model wants it.

        A template that writes the BOS itself gets no second one.
        """
        ids = self.parse(text)
        return [self._bos, *ids] if self._add_bos and ids[:1] != [self._bos] else ids

    def parse(self, text: str) -> list[int]:
        """The tokens of a text, special tokens parsed, nothing put before it."""
        data = text.encode("utf-8", "replace")
        room = len(data) + 8
        tokens = (ctypes.c_int32 * room)()
        n = api.llama_tokenize(self.handle, data, len(data), tokens, room, False, True)
        if n < 0:
            raise EngineRefused(500, "the prompt could not be tokenised")
        return tokens[:n]

    def is_special(self, token: int) -> bool:
        """Whether the text of the token is parsed as that token wherever it stands."""
        kind = api.llama_vocab_get_attr(self.handle, token)
        return bool(kind & (api.LLAMA_TOKEN_ATTR_CONTROL | api.LLAMA_TOKEN_ATTR_USER_DEFINED))

    def piece(self, token: int) -> bytes:
        """The bytes of one token; none for most control tokens."""
        if (marker := self._markers.get(token)) is not None:
            return marker
        size = _PIECE_BYTES
        buffer = ctypes.create_string_buffer(size)
        n = api.llama_token_to_piece(self.handle, token, buffer, size, 0, False)
        if n < 0:
            buffer = ctypes.create_string_buffer(-n)
            n = api.llama_token_to_piece(self.handle, token, buffer, -n, 0, False)
        return buffer.raw[:n]

    def ends(self, token: int) -> bool:
        """Whether the token ends a generation."""
        return bool(api.llama_vocab_is_eog(self.handle, token))

    def _text(self, token: int) -> str:
        if token < 0:
            return ""
        text: bytes | None = api.llama_vocab_get_text(self.handle, token)
        return (text or b"").decode("utf-8", "replace")


class Model:
    """Weights in memory. Close it last."""

    def __init__(
        self, path: Path, settings: LoadSettings, keep_loading: Callable[[], bool], *, heads: bool
    ) -> None:
        """Load `path`, with its draft layers if `heads`, asking `keep_loading` now and then.

        Raises `ModelFileInvalid`, and `EngineRefused` for a device that is not there.
        """
        self.path = path
        api.llama_backend_init()
        params = api.llama_model_default_params()
        params.n_gpu_layers = -1 if settings.gpu_layers is None else settings.gpu_layers
        params.split_mode = SPLIT_MODES[settings.split_mode]
        params.load_mtp = heads
        progress = api.llama_progress_callback(lambda _done, _data: keep_loading())
        params.progress_callback = progress
        self._kept = place_on_devices(params, settings)
        self.handle: Any = api.llama_model_load_from_file(bytes(self.path), params)
        if not self.handle:
            raise ModelFileInvalid(str(self.path), "llama.cpp could not load it; its log says why")
        if api.llama_model_has_encoder(self.handle) or api.llama_model_is_diffusion(self.handle):
            raise ModelFileInvalid(str(self.path), "it does not write text token by token")
        self.vocabulary = Vocabulary(self.handle)
        self.width: int = api.llama_model_n_embd_out(self.handle)
        self.draft_layers: int = max(0, api.llama_model_n_layer_nextn(self.handle))
        # Recurrent state is the sum of all tokens so far: it cannot be cut back to fewer.
        self.recurrent = bool(
            api.llama_model_is_recurrent(self.handle) or api.llama_model_is_hybrid(self.handle)
        )

    def close(self) -> None:
        """Give the memory back."""
        api.llama_model_free(self.handle)


def place_on_devices(params: Any, settings: LoadSettings) -> list[Any]:
    """Put devices and their shares into `params`; the arrays that must outlive the load.

    Raises `EngineRefused` for a device that llama.cpp does not have.
    """
    kept: list[Any] = []
    if settings.devices:
        by_name = libggml.ggml_backend_dev_by_name
        by_name.argtypes, by_name.restype = [ctypes.c_char_p], ctypes.c_void_p
        found = [by_name(name.encode()) for name in settings.devices]
        for name, device in zip(settings.devices, found, strict=True):
            if not device:
                raise EngineRefused(400, f"llama.cpp has no device '{name}' here")
        devices = (ctypes.c_void_p * (len(found) + 1))(*found, None)
        params.devices = ctypes.cast(devices, ctypes.c_void_p)
        kept.append(devices)
    if settings.tensor_split:
        room = max(api.llama_max_devices(), len(settings.tensor_split))
        shares = (ctypes.c_float * room)(*settings.tensor_split)
        params.tensor_split = ctypes.cast(shares, ctypes.POINTER(ctypes.c_float))
        kept.append(shares)
    return kept
