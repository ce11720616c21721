"""Servers that answer as llama-server, vLLM or some other one would, with a model that babbles.

Not a model at all: what it says follows from the request, as a sampler would make it follow. What a
server does not know it ignores or refuses, as told.
"""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass, field
from typing import Any

from tests.engine.fake_server import Asked, ended, reply, said, stream, used

WORDS = ("ash", "birch", "cedar", "elm", "fir", "gum", "hazel", "ivy", "juniper", "larch")
PROMPT = 20
LLAMA_SERVER = {
    "id": "some.gguf",
    "owned_by": "llamacpp",
    "meta": {"n_params": 1_000, "size": 2_000, "ftype": "Q6_K"},
}
VLLM = {"id": "veriloop-e2", "owned_by": "vllm", "max_model_len": 131_072}
OTHER = {"id": "thing", "owned_by": "somebody"}


@dataclass(slots=True)
class Dialect:
    """What a server tells, takes and refuses; `answer` is what the smoke test gets."""

    models: tuple[dict[str, Any], ...]
    answer: dict[str, Any] = field(default_factory=lambda: said("8001_OK"))
    ignores: frozenset[str] = frozenset()
    refuses: frozenset[str] = frozenset()
    key: str = ""
    timings: bool = True
    unseeded: random.Random = field(default_factory=lambda: random.Random(0))

    def __call__(self, asked: Asked, connection: socket.socket) -> None:
        """Answer one request."""
        if self.key and asked.headers.get("authorization") != f"Bearer {self.key}":
            connection.sendall(reply(401, {"error": {"message": "Invalid API Key"}}))
            return
        documents: dict[str, dict[str, Any]] = {
            "/v1/models": {"object": "list", "data": list(self.models)},
            "/props": {
                "build_info": "b9-abc",
                "default_generation_settings": {"n_ctx": 4_096},
            },
            "/version": {"version": "0.17.0"},
        }
        if asked.path in documents:
            connection.sendall(reply(200, documents[asked.path]))
        elif asked.path == "/v1/chat/completions":
            connection.sendall(self._chat(asked.json))
        else:
            connection.sendall(reply(404, {"error": {"message": "not found"}}))

    def _chat(self, body: dict[str, Any]) -> bytes:
        wrong = self.refuses & set(body)
        if wrong:
            return reply(400, {"error": {"message": f"unknown field {sorted(wrong)[0]}"}})
        body = {name: value for name, value in body.items() if name not in self.ignores}
        n = body.get("n", 1)
        pieces = [self._said(body, index) for index in range(n)]
        ends = [ended("stop", index) for index in range(n)]
        told: dict[str, Any] = (
            {"timings": {"prompt_ms": 1.0, "predicted_ms": 2.0}} if self.timings else {}
        )
        return stream(*pieces, *ends, {**used(self._prompt(body), 3), **told})

    def _prompt(self, body: dict[str, Any]) -> int:
        if body["messages"][-1]["role"] != "assistant":
            return PROMPT
        return PROMPT + (1 if body.get("continue_final_message") else 7)

    def _said(self, body: dict[str, Any], index: int) -> dict[str, Any]:
        structured = body.get("structured_outputs") or {}
        if "grammar" in body or "grammar" in structured:
            return said("7", index)
        if "response_format" in body:
            return said('{"ok": true}', index)
        if "8001_OK" in body["messages"][0]["content"]:
            return self.answer
        if body["temperature"] == 0 or body.get("top_k") == 1:
            return said(" ".join(WORDS[:6]), index)
        chance = random.Random(body["seed"] + index) if "seed" in body else self.unseeded
        return said(" ".join(chance.choices(WORDS, k=6)), index)
