"""No test of the language may leave a thread, a task or a default backend behind."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from espalier.lang import loop
from espalier.lang.config import global_config
from espalier.lang.workers import THREAD_NAME

_LEAVE_TIMEOUT_S = 5.0


def program_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == THREAD_NAME]


def pending_tasks() -> list[str]:
    async def others() -> list[str]:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        return [repr(task) for task in tasks]

    return asyncio.run_coroutine_threadsafe(others(), loop.event_loop()).result(_LEAVE_TIMEOUT_S)


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    yield
    global_config.default_backend = None
    deadline = time.monotonic() + _LEAVE_TIMEOUT_S
    while (program_threads() or pending_tasks()) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert program_threads() == []
    assert pending_tasks() == []
