"""Grammars run by llama.cpp itself, on a vocabulary of single bytes and an end of the answer."""

import ctypes
import random

import numpy as np

from veriloop_tui.engine.decoding.llama import Vocabulary
from veriloop_tui.engine.decoding.native import api

_EOS = 256
# First bytes after which llama.cpp lets bytes follow that are no UTF-8.
_HURRY: tuple[int, ...] = (*b'"}]', *b"0123456789-", *range(0x80, 0xC0))
_NOT_UTF8 = {0xC0, 0xC1, 0xE0, 0xED, *range(0xF0, 0x100)}
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Matcher:
    """What llama.cpp allows next, byte by byte."""

    def __init__(self, vocabulary: Vocabulary, grammar: str) -> None:
        self._grammar = api.llama_sampler_init_grammar(vocabulary.handle, grammar.encode(), b"root")
        assert self._grammar, grammar

    def close(self) -> None:
        api.llama_sampler_free(self._grammar)

    def allowed(self) -> set[int]:
        tokens = np.zeros(_EOS + 1, _CANDIDATE)
        tokens["id"] = np.arange(_EOS + 1)
        data = tokens.ctypes.data_as(api.llama_token_data_p)
        array = api.llama_token_data_array(data, len(tokens), -1, False)
        api.llama_sampler_apply(self._grammar, ctypes.byref(array))
        return {int(token) for token in np.nonzero(tokens["logit"] > -np.inf)[0]}

    def take(self, byte: int) -> None:
        api.llama_sampler_accept(self._grammar, byte)


def matches(vocabulary: Vocabulary, grammar: str, text: str) -> bool:
    """Whether the grammar allows exactly this text."""
    matcher = Matcher(vocabulary, grammar)
    try:
        for byte in text.encode():
            if byte not in matcher.allowed():
                return False
            matcher.take(byte)
        return _EOS in matcher.allowed()
    finally:
        matcher.close()


def written(
    vocabulary: Vocabulary, grammar: str, seed: int, ending: bytes = b"", long: int = 80
) -> str:
    """A text that the grammar allows, at random; after `long` bytes it hurries to an end.

    Free texts end with `ending`.
    """
    matcher = Matcher(vocabulary, grammar)
    chance, out = random.Random(seed), bytearray()
    queue: list[int] = []
    while True:
        allowed = matcher.allowed()
        assert allowed, out
        hurried = len(out) > long and chance.random() < 0.7
        if _EOS in allowed and (hurried or allowed == {_EOS} or chance.random() < 0.5):
            matcher.close()
            return out.decode()
        if not queue and (hurried or chance.random() < 0.1):
            queue = list(ending)
        choice = queue.pop(0) if queue and queue[0] in allowed else None
        if choice is None:
            queue = []
            choice = _choice(allowed, chance, hurried)
        matcher.take(choice)
        out.append(choice)
        assert len(out) < 20_000


def _choice(allowed: set[int], chance: random.Random, hurried: bool) -> int:
    quick = next((byte for byte in _HURRY if byte in allowed), None) if hurried else None
    if quick is not None:
        return quick
    # Plain letters more often than all the rest, so that words and names come about.
    known = sorted(allowed & {*b'abcnkxy019", :{}[]-.'})
    every = sorted(allowed - {_EOS} - _NOT_UTF8) or sorted(allowed)
    return chance.choice(known if known and chance.random() < 0.9 else every)
