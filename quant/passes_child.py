"""The process that runs one model over chunks of text; its logits go into a shared file.

It tells of itself in one line of JSON, then does one line of JSON from standard input at a time:
the chunks of one batch, each beginning a new sequence. It ends with its standard input, so also
when the program that reads its logits is gone.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import llama_cpp.llama_cpp as api
import numpy as np

from quant.corpora_worker import _LOG as LOG


def _tokens(vocabulary: Any, text: bytes, special: bool) -> list[int]:
    size = -api.llama_tokenize(vocabulary, text, len(text), None, 0, True, special)
    buffer = (ctypes.c_int32 * max(1, size))()
    count = api.llama_tokenize(vocabulary, text, len(text), buffer, size, True, special)
    return list(buffer[:count])


def _context(model: Any, order: dict[str, Any]) -> Any:
    params: Any = api.llama_context_default_params()
    params.n_ctx = order["sequences"] * order["n_ctx"]
    params.n_batch, params.n_ubatch = order["n_batch"], order["n_ubatch"]
    params.n_seq_max = order["sequences"]
    params.n_threads = params.n_threads_batch = order["threads"]
    return api.llama_init_from_model(model, params)


def _decode(context: Any, chunks: list[list[int]], n_ctx: int) -> bool:
    """One batch of whole chunks, asking for the logits of each one's second half."""
    batch = api.llama_batch_init(len(chunks) * n_ctx, 0, 1)
    try:
        at = 0
        for sequence, chunk in enumerate(chunks):
            for position, token in enumerate(chunk):
                batch.token[at], batch.pos[at] = token, position
                batch.n_seq_id[at], batch.seq_id[at][0] = 1, sequence
                batch.logits[at] = position >= n_ctx // 2
                at += 1
        batch.n_tokens = at
        api.llama_memory_clear(api.llama_get_memory(context), True)
        return bool(api.llama_decode(context, batch) == 0)
    finally:
        api.llama_batch_free(batch)


def _run(order: dict[str, Any], out: TextIO) -> int:
    params: Any = api.llama_model_default_params()
    model = api.llama_model_load_from_file(os.fsencode(order["model"]), params)
    if not model:
        return 1
    vocabulary = api.llama_model_get_vocab(model)
    size: int = api.llama_vocab_n_tokens(vocabulary)
    shared = Path(order["shared"])
    texts = [(api.llama_vocab_get_text(vocabulary, at) or b"").hex() for at in range(size)]
    shared.with_suffix(".vocabulary").write_text("\n".join(texts), "ascii")
    text = Path(order["text"]).read_bytes() if order["text"] else b""
    told = {
        "vocabulary": size,
        "bos": api.llama_vocab_bos(vocabulary),
        "add_bos": bool(api.llama_vocab_get_add_bos(vocabulary)),
        "tokens": _tokens(vocabulary, text, order["special"]) if text else [],
    }
    rows = order["n_ctx"] - order["n_ctx"] // 2
    shape = (order["sequences"] * rows, size)
    logits = np.memmap(shared, np.float32, "w+", shape=shape)
    context = _context(model, order)
    if not context:
        return 1
    print(json.dumps(told), file=out, flush=True)
    for line in sys.stdin:
        chunks = json.loads(line)
        if not _decode(context, chunks, order["n_ctx"]):
            return 1
        count = len(chunks) * rows
        found = np.ctypeslib.as_array(api.llama_get_logits(context), (count, size))
        logits[:count] = found
        print("done", file=out, flush=True)
    return 0


def main() -> int:
    """Run the model that the order in the first argument names; 0 if all went well."""
    api.llama_log_set(LOG, ctypes.c_void_p(0))
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        return _run(json.loads(sys.argv[1]), out)
