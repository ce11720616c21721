"""Speed of the engine's decode loop beside llama-cpp-python's high-level `Llama`, on one GGUF.

Run: python -m benchmarks.bench_engine MODEL.gguf. Numbers are the best of several rounds, taken in
turns, so that what else the machine does hits all of them alike. Tokens per second.
"""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from veriloop_tui.core.chat import ChatFinished, ChatRequest, Message, Sampling, TextDelta
from veriloop_tui.engine.decode import generate
from veriloop_tui.engine.gguf_facts import read_facts
from veriloop_tui.engine.llama import Memory, Model, silence_logs
from veriloop_tui.engine.process import EngineProcess
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.engine.template import ChatTemplate

N_CTX, N_TOKENS, ROUNDS = 4096, 128, 5
STORY = "Tell me a long story about a lighthouse."
THREADS = psutil.cpu_count(logical=False) or 1


def request(text: str, max_tokens: int = N_TOKENS) -> ChatRequest:
    return ChatRequest((Message("user", text),), Sampling(temperature=0.0), 1, max_tokens)


def rate(end: object) -> float:
    assert isinstance(end, ChatFinished)
    return end.usage.completion_tokens / end.timings.predicted_ms * 1e3


def main(path: Path) -> None:
    from llama_cpp import Llama  # loads what the engine has set up for it

    silence_logs()
    model = Model(path, 0, lambda: True)
    memory = Memory(model, path, N_CTX, THREADS)
    vocabulary = model.vocabulary
    template = ChatTemplate(read_facts(path).chat_template, vocabulary.bos, vocabulary.eos)
    text = template.render(request(STORY).messages)
    prompt = vocabulary.tokenise(text)
    high = Llama(str(path), n_ctx=N_CTX, n_threads=THREADS, verbose=False)
    with EngineProcess(LoadSettings(path, n_ctx=N_CTX)) as process:
        client = process.client()

        def direct() -> float:
            memory.clear()
            *_, end = generate(memory, vocabulary, prompt, request(""), lambda: False)
            return rate(end)

        def over_http() -> float:
            *_, end = client.complete(request(STORY), threading.Event())
            return rate(end)

        def high_level() -> float:
            high.reset()  # type: ignore[no-untyped-call]
            stream = iter(
                high.create_completion(text, max_tokens=N_TOKENS, temperature=0.0, stream=True)
            )
            next(stream)
            begun = time.perf_counter()
            made = sum(1 for _ in stream)
            return made / (time.perf_counter() - begun)

        ways: dict[str, Callable[[], float]] = {
            "decode loop": direct,
            "over HTTP": over_http,
            "high-level Llama": high_level,
        }
        best = dict.fromkeys(ways, 0.0)
        for _ in range(ROUNDS):
            for name, way in ways.items():
                best[name] = max(best[name], way())
        for name, value in best.items():
            ratio = value / best["high-level Llama"]
            print(f"{name:20} {value:8.1f} tokens/s  {ratio:5.2f} of high-level")

        shared = "The lamp turned and turned over the dark water. " * 200
        for name, question in (("cold", "Who?"), ("prefix reused", "Where?")):
            begun = time.perf_counter()
            first = 0.0
            for event in client.complete(request(shared + question, 4), threading.Event()):
                if isinstance(event, TextDelta) and not first:
                    first = time.perf_counter() - begun
            assert isinstance(event, ChatFinished)
            usage = event.usage
            print(
                f"first token, {name:14} {first * 1e3:8.0f} ms  {usage.prompt_tokens} prompt"
                f" tokens, {usage.reused_tokens} reused"
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
