"""A process with a ZooKeeper session in a file, for tests that kill or freeze it.

Usage: python -m tests.support.services.session_owner HOSTS NODE FILE

It creates the ephemeral node NODE, prints a line, and lives until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from leadline_common.settings import CoordinatorSettings
from leadline_common.zk.session import ZkSession
from leadline_common.zk.session_file import stored_transport

SESSION_TIMEOUT_MS = 60_000
"""Longer than a test: what is gone before was closed."""


async def _live(hosts: str, node: str, file: Path) -> None:
    settings = CoordinatorSettings(
        coordinator_id=1, zookeeper_connect=hosts, zookeeper_session_file=str(file)
    )
    session = ZkSession(open_transport=await stored_transport(settings))
    await session.start(hosts, SESSION_TIMEOUT_MS)
    await session.create(node, b"", ephemeral=True)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_live(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
