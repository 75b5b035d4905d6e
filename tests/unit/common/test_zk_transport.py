"""The connection of a session ends also when no thread of the process is free."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from leadline_common.zk.transport import KazooTransport

DEADLINE_S = 20


async def test_a_session_is_closed_although_all_threads_wait_for_a_disk() -> None:
    goes_on = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        threads.submit(goes_on.wait)
        transport = KazooTransport("127.0.0.1:1", 2_000, lambda _: None)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await transport.finish()
        finally:
            goes_on.set()
