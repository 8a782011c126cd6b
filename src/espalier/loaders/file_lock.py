"""A lock that processes and threads share through a file; it dies with its holder.

It knows paths only. `flock` belongs to the open file, so two threads exclude each other too, and
the kernel lets go when a holder is killed.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_S = 0.1


@contextmanager
def locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Holds the lock of `path` (made if absent, never removed) inside the block.

    `on_wait` is called once if another holds it. Waits without limit: a holder that is stuck can
    be seen and ended by the user, and ^C ends the wait. Raises OSError where files cannot be
    locked.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        told = False
        while not _try_lock(handle):
            if not told:
                on_wait()
                told = True
            time.sleep(POLL_S)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
