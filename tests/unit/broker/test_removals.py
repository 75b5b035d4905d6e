"""Removals of files: whatever else threads do does not wait for them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from leadline_broker.runtime.replication.removals import Removals


async def test_other_work_in_threads_does_not_wait_for_removals() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    removals, may_end = Removals(), threading.Event()

    def remove() -> None:
        may_end.wait(60)

    for _ in range(10):
        removals.add(remove)

    try:
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(lambda: "checked") == "checked"
        assert len(removals) == 10
    finally:
        may_end.set()
    await removals.finish()
    assert len(removals) == 0


async def test_a_removal_that_fails_ends_no_other() -> None:
    removals, removed = Removals(), list[str]()

    def fail() -> None:
        raise OSError

    removals.add(fail)
    removals.add(lambda: removed.append("a file"))
    await removals.finish()

    assert removed == ["a file"]
