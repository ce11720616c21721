"""A process that ends with the program that started it, whatever happens to that one."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from typing import Final

# To stop decoding and, in an engine, to write the context.
_LAST_SECONDS: Final = 30.0


def die_with_parent() -> None:
    """End this process when the one that started it ends, its context kept where one is to be.

    Not by PR_SET_PDEATHSIG: that follows the parent's *thread*, and apps start engines from
    threads that end. The pipe on stdin closes with the parent; its id is watched as well, since
    a fork of the parent may hold the pipe open.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            ready, _, _ = select.select([0], [], [], 0.5)
            if ready and not os.read(0, 1):
                break
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_LAST_SECONDS)
        os._exit(0)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
