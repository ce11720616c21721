"""Drawing tokens from logits with llama.cpp's samplers, under a grammar where one is wanted."""

from __future__ import annotations

import ctypes
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from veriloop_tui.core.chat import Sampling
from veriloop_tui.engine.decoding.llama import Vocabulary
from veriloop_tui.engine.decoding.native import api
from veriloop_tui.errors import EngineRefused

_PENALTY_WINDOW: Final = 64
_CANDIDATE: Final = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Logits(Protocol):
    """Rows of logits, as the last evaluation left them."""

    context: Any

    def logits(self, row: int) -> NDArray[np.float32]:
        """One row, [vocabulary]; valid until the next evaluation."""


class Sampler:
    """A chain of llama.cpp samplers; use as a context manager, it owns native memory.

    What it draws depends on the logits and on what it drew before, never on how many rows were
    evaluated at once: so speculation needs no rolling back of it.
    """

    def __init__(self, sampling: Sampling, seed: int, vocabulary: Vocabulary) -> None:
        """`seed` of any size is folded to 32 bits; equal seeds give equal draws."""
        self._vocabulary = vocabulary
        self._chain: Any = api.llama_sampler_chain_init(api.llama_sampler_chain_default_params())
        self._grammar: Any = None
        penalised = sampling.repeat_penalty != 1.0
        self.window = _PENALTY_WINDOW if penalised else 0
        self._greedy = sampling.temperature <= 0.0 and not penalised
        if penalised:
            self._add(
                api.llama_sampler_init_penalties(
                    vocabulary.size, _PENALTY_WINDOW, sampling.repeat_penalty, 0.0, 0.0
                )
            )
        if sampling.temperature <= 0.0:
            self._add(api.llama_sampler_init_greedy())
            return
        if sampling.top_k > 0:
            self._add(api.llama_sampler_init_top_k(sampling.top_k))
        self._add(api.llama_sampler_init_top_p(sampling.top_p, 1))
        self._add(api.llama_sampler_init_min_p(sampling.min_p, 1))
        self._add(api.llama_sampler_init_temp(sampling.temperature))
        # 0xFFFFFFFF would mean "choose a seed yourself", so it is left out of the range.
        self._add(api.llama_sampler_init_dist(seed % 0xFFFF_FFFF))

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, *_exc: object) -> None:
        api.llama_sampler_free(self._chain)
        if self._grammar is not None:
            api.llama_sampler_free(self._grammar)

    def constrain(self, gbnf: str) -> None:
        """From here on only draw what the grammar allows. Raises `EngineRefused` (400)."""
        grammar = api.llama_sampler_init_grammar(self._vocabulary.handle, gbnf.encode(), b"root")
        if not grammar:
            raise EngineRefused(400, "the grammar is not valid GBNF with a rule named root")
        self._grammar = grammar

    def accept(self, token: int) -> None:
        """Let the penalties and the grammar know a token that was not drawn here.

        The grammar must allow it: llama.cpp ends the process otherwise.
        """
        api.llama_sampler_accept(self._chain, token)
        if self._grammar is not None and self._allows(token):
            api.llama_sampler_accept(self._grammar, token)

    def sample(self, rows: Logits, row: int) -> int:
        """Draw from the logits of a row.

        Raises `EngineRefused` if they are no numbers, which no sampler would notice, or if the
        grammar has come to an end that the vocabulary cannot write.
        """
        logits = rows.logits(row)
        if self._grammar is not None:
            token = self._draw_allowed(logits)
        elif self._greedy:
            token = int(logits.argmax())
        else:
            token = int(api.llama_sampler_sample(self._chain, rows.context, row))
        if logits[token] != logits[token]:
            raise EngineRefused(500, "the model computes no numbers; its file may be damaged")
        return token

    def _draw_allowed(self, logits: NDArray[np.float32]) -> int:
        """Check the drawn token only, and ask the grammar about all of them when it refuses.

        At a vocabulary of 248k a grammar takes 13 ms for all tokens and 2 µs for one.
        """
        token = self._draw(_candidates(logits), allowed_only=False)
        if not self._allows(token):
            token = self._draw(_candidates(logits), allowed_only=True)
            if not self._allows(token):
                raise EngineRefused(500, "the model has no token that the grammar allows here")
        api.llama_sampler_accept(self._chain, token)
        api.llama_sampler_accept(self._grammar, token)
        return token

    def _draw(self, candidates: NDArray[np.void], *, allowed_only: bool) -> int:
        array = _native(candidates)
        if allowed_only:
            api.llama_sampler_apply(self._grammar, ctypes.byref(array))
        api.llama_sampler_apply(self._chain, ctypes.byref(array))
        return int(array.data[array.selected].id)

    def _allows(self, token: int) -> bool:
        one = np.array([(token, 1.0, 0.0)], _CANDIDATE)
        array = _native(one)
        api.llama_sampler_apply(self._grammar, ctypes.byref(array))
        return bool(one["logit"][0] > -np.inf)

    def _add(self, sampler: Any) -> None:
        api.llama_sampler_chain_add(self._chain, sampler)


def _candidates(logits: NDArray[np.float32]) -> NDArray[np.void]:
    made = np.zeros(len(logits), _CANDIDATE)
    made["id"] = np.arange(len(logits), dtype=np.int32)
    made["logit"] = logits
    return made


def _native(candidates: NDArray[np.void]) -> Any:
    data = candidates.ctypes.data_as(api.llama_token_data_p)
    return api.llama_token_data_array(data, len(candidates), -1, False)
