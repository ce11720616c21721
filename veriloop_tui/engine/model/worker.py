"""The thread that owns the loaded model: requests wait in its queue and run one at a time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor

from veriloop_tui.core.chat import ChatEvent
from veriloop_tui.core.ports import Cancel
from veriloop_tui.engine.decoding.coalesce import coalesced
from veriloop_tui.engine.job import Job
from veriloop_tui.engine.model.loading import Loaded
from veriloop_tui.engine.settings import LoadSettings


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

    async def run(self, loaded: Loaded, job: Job, cancel: Cancel) -> AsyncIterator[ChatEvent]:
        """The events of one job, after those of the jobs before it.

        Raises `EngineRefused`, `ContextTooLong`.
        """
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[ChatEvent | None] = asyncio.Queue()

        def cancelled() -> bool:
            return cancel.is_set() or self._stopping.is_set()

        def decode() -> None:
            for event in coalesced(loaded.run(job, cancelled), time.monotonic):
                loop.call_soon_threadsafe(events.put_nowait, event)

        def ended(_job: Future[None]) -> None:
            loop.call_soon_threadsafe(events.put_nowait, None)

        done = self._thread.submit(decode)
        done.add_done_callback(ended)
        while (event := await events.get()) is not None:
            yield event
        done.result()

    def stop(self) -> None:
        """End what is running or loading, keep the context, free the model. Blocks for a moment."""
        self._stopping.set()
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self.loaded is not None:
            self.loaded.keep()
            self.loaded.close()
            self.loaded = None
