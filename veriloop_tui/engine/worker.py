"""The thread that owns the loaded model: requests wait in its queue and run one at a time."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import psutil

from veriloop_tui.core.chat import ChatEvent, ChatRequest, ModelFacts
from veriloop_tui.core.ports import Cancel
from veriloop_tui.engine.decode import check_fits, generate
from veriloop_tui.engine.gguf_facts import GGUFFacts, check_loadable, file_digest, read_facts
from veriloop_tui.engine.llama import Memory, Model, silence_logs
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.engine.template import ChatTemplate

DEFAULT_N_CTX: Final = 8_192


class Loaded:
    """A model ready to answer."""

    def __init__(self, settings: LoadSettings, keep_loading: Callable[[], bool]) -> None:
        """Check the header, then load. Raises `ModelFileInvalid`, `TemplateError`."""
        silence_logs()
        header = read_facts(settings.model)
        check_loadable(header)
        n_ctx = settings.n_ctx or min(header.context_length or DEFAULT_N_CTX, DEFAULT_N_CTX)
        threads = settings.threads or _usable_cores()
        self.model = Model(
            settings.model, -1 if settings.gpu_layers is None else settings.gpu_layers, keep_loading
        )
        self.memory = Memory(self.model, settings.model, n_ctx, threads)
        vocabulary = self.model.vocabulary
        self.template = ChatTemplate(header.chat_template, vocabulary.bos, vocabulary.eos)
        self.facts = _facts(header, self.memory.n_ctx)

    def prepare(self, request: ChatRequest) -> list[int]:
        """The prompt's tokens. Raises `TemplateError`, `ContextTooLong`, `EngineRefused`."""
        text = self.template.render(request.messages, request.continue_final_message)
        prompt = self.model.vocabulary.tokenise(text)
        check_fits(prompt, self.memory.n_ctx)
        return prompt

    def close(self) -> None:
        """Free the native memory."""
        self.memory.close()
        self.model.close()


class Worker:
    """Loads the model and runs requests on a thread of its own, for one event loop."""

    def __init__(self, settings: LoadSettings) -> None:
        self._settings = settings
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="decode")
        self._stopping = threading.Event()
        self.loaded: Loaded | None = None

    async def load(self) -> None:
        """Load the model. Raises what `Loaded` raises."""
        loop = asyncio.get_running_loop()

        def keep_loading() -> bool:
            return not self._stopping.is_set()

        self.loaded = await loop.run_in_executor(self._thread, Loaded, self._settings, keep_loading)

    async def run(
        self, loaded: Loaded, prompt: list[int], request: ChatRequest, cancel: Cancel
    ) -> AsyncIterator[ChatEvent]:
        """The events of one completion, after those of the requests before it.

        Raises `EngineRefused`.
        """
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[ChatEvent | None] = asyncio.Queue()

        def cancelled() -> bool:
            return cancel.is_set() or self._stopping.is_set()

        def decode() -> None:
            made: Iterator[ChatEvent] = generate(
                loaded.memory, loaded.model.vocabulary, prompt, request, cancelled
            )
            for event in made:
                loop.call_soon_threadsafe(events.put_nowait, event)

        def ended(_job: Future[None]) -> None:
            loop.call_soon_threadsafe(events.put_nowait, None)

        job = self._thread.submit(decode)
        job.add_done_callback(ended)
        while (event := await events.get()) is not None:
            yield event
        job.result()

    def stop(self) -> None:
        """End what is running or loading, wait for that, free the model. Blocks for a moment."""
        self._stopping.set()
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self.loaded is not None:
            self.loaded.close()
            self.loaded = None


def _usable_cores() -> int:
    """Physical cores, but no more than this process may run on (a container may have fewer)."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(psutil.cpu_count(logical=False) or 1, allowed or 1)


def _facts(header: GGUFFacts, n_ctx: int) -> ModelFacts:
    return ModelFacts(
        name=header.name,
        architecture=header.architecture,
        path=header.path,
        file_size=header.file_size,
        parameters=header.parameters,
        quant=header.quant,
        bpw=header.bpw,
        n_ctx=n_ctx,
        file_digest=file_digest(header),
        template_hash=header.template_hash,
    )
