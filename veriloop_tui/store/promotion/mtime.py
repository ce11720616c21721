"""The modification time of a promoted file.

Python takes a .pyc for current when the source's mtime, in whole seconds, and its size are those
it was compiled from; make rebuilds only what is older than its source. So a new version whose
mtime falls into the second of the version before it may run as the old one. The new mtime is
therefore now, but at least one second after the old one. It is never more than a second ahead of
the clock, lest make complain or rebuild for ever: where one second after the old mtime would be
further ahead than that (two promotions of one file within a second), we wait until it is not.
"""

from __future__ import annotations

import math

from veriloop_tui.core.ports import Clock

SECOND = 1_000_000_000


def following_mtime(previous: int, clock: Clock) -> int:
    """The mtime for a file that replaces one with mtime `previous`; both in ns since the epoch.

    Waits at most about a second. A `previous` further ahead than that comes from a wrong clock;
    the new mtime is then now, which lies in another second too.
    """
    now = _nanoseconds(clock)
    while 0 < previous - now <= SECOND:
        clock.sleep(math.ceil((previous - now) / 1e6) / 1e3)
        now = _nanoseconds(clock)
    later = max(now, previous + SECOND)
    return later if later <= now + SECOND else now


def _nanoseconds(clock: Clock) -> int:
    return int(clock.now() * SECOND)
